// The filters of lists, dicts and other sequences.
#include <algorithm>
#include <charconv>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/chat/characters.h"
#include "trainer_core/chat/filters.h"

namespace muster::trainer::chat {
namespace {

bool is_true_argument(const Value* value) { return value != nullptr && value->is_true(); }

// Returns the item's attribute "a.b.0", as Jinja's make_attrgetter(); the item itself without an
// attribute.
Value attribute_of(Evaluator& evaluator, const Value& item, const Value* attribute) {
  if (attribute == nullptr || attribute->is_none()) return item;
  if (attribute->is_integer()) return evaluator.item(item, *attribute);
  Value value = item;
  const std::string path = evaluator.text_of(*attribute);
  for (const std::string_view part : split(path, ".", -1, false)) {
    int64_t number = 0;
    const bool is_number = std::from_chars(part.data(), part.data() + part.size(), number).ptr ==
                               part.data() + part.size() &&
                           !part.empty();
    value =
        evaluator.item(value, is_number ? Value::integer(number) : Value::text(std::string(part)));
  }
  return value;
}

// Compares texts without their case if `ignores_case`.
Value sort_key(Evaluator& evaluator, const Value& value, bool ignores_case) {
  const std::string* const text = value.as_text();
  return ignores_case && text != nullptr ? evaluator.text(lower(*text)) : value;
}

Value filter_length(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  arguments.bind("the filter length", {});
  return Value::integer(static_cast<int64_t>(evaluator.length(input)));
}

Value filter_first(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  arguments.bind("the filter first", {});
  const auto items = evaluator.items_of(input);
  return items->items.empty() ? Value::undefined("the first item of nothing")
                              : items->items.front();
}

Value filter_last(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  arguments.bind("the filter last", {});
  const auto items = evaluator.items_of(input);
  return items->items.empty() ? Value::undefined("the last item of nothing") : items->items.back();
}

Value filter_as_list(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  arguments.bind("the filter list", {});
  const auto items = evaluator.items_of(input);
  evaluator.count_items(items->items.size());
  return Value::list(items->items);
}

Value filter_reverse(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  arguments.bind("the filter reverse", {});
  const auto sequence = evaluator.items_of(input);
  evaluator.count_items(sequence->items.size());
  std::vector<Value> items = sequence->items;
  std::ranges::reverse(items);
  if (input.as_text() == nullptr) return Value::list(std::move(items));
  std::string out;
  for (const Value& character : items) out += *character.as_text();
  return evaluator.text(std::move(out));
}

Value filter_join(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  const auto given = arguments.bind("the filter join", {"d", "attribute"});
  const std::string separator = given[0] != nullptr ? evaluator.text_of(*given[0]) : "";
  std::string out;
  bool is_first = true;
  const auto sequence = evaluator.items_of(input);
  for (const Value& item : sequence->items) {
    if (!is_first) out += separator;
    is_first = false;
    const size_t before = out.size();
    out += evaluator.text_of(attribute_of(evaluator, item, given[1]));
    evaluator.count_work(out.size() - before + separator.size());
  }
  return evaluator.text(std::move(out));
}

Value filter_items(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  arguments.bind("the filter items", {});
  if (input.is_undefined()) return Value::list({});
  if (input.as_dict() == nullptr)
    throw TemplateError(
        absl::StrCat("the filter items needs a dict, not a ", av(input.type_name())));
  return call_method(evaluator, {"items", input, nullptr}, {});
}

Value sorted(Evaluator& evaluator, std::vector<Value> items, bool reverse, bool ignores_case,
             const Value* attribute) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items) {
    evaluator.count_items(3);
    Value key = sort_key(evaluator, attribute_of(evaluator, item, attribute), ignores_case);
    keyed.emplace_back(std::move(key), std::move(item));
  }
  evaluator.count_work(items.size() * 20);
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    // Equal keys need no order: missing attributes are equal.
    if (evaluator.are_equal(a.first, b.first)) return false;
    return reverse ? evaluator.is_less(b.first, a.first) : evaluator.is_less(a.first, b.first);
  });
  std::vector<Value> out;
  for (auto& [key, item] : keyed) out.push_back(std::move(item));
  return Value::list(std::move(out));
}

Value filter_sort(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  const auto given = arguments.bind("the filter sort", {"reverse", "case_sensitive", "attribute"});
  return sorted(evaluator, evaluator.items_of(input)->items, is_true_argument(given[0]),
                !is_true_argument(given[1]), given[2]);
}

Value filter_dictsort(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  const auto given = arguments.bind("the filter dictsort", {"case_sensitive", "by", "reverse"});
  evaluator.require_defined(input);
  const Value pairs = filter_items(evaluator, input, {});
  const std::string by = given[1] != nullptr ? evaluator.text_of(*given[1]) : "key";
  if (by != "key" && by != "value")
    throw TemplateError("the filter dictsort sorts by \"key\" or \"value\"");
  const Value at = Value::integer(by == "key" ? 0 : 1);
  return sorted(evaluator, pairs.as_list()->items, is_true_argument(given[2]),
                !is_true_argument(given[0]), &at);
}

Value filter_unique(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  const auto given = arguments.bind("the filter unique", {"case_sensitive", "attribute"});
  std::vector<Value> keys;
  std::vector<Value> kept;
  const auto sequence = evaluator.items_of(input);
  for (const Value& item : sequence->items) {
    Value key =
        sort_key(evaluator, attribute_of(evaluator, item, given[1]), !is_true_argument(given[0]));
    const auto is_key = [&](const Value& other) { return evaluator.are_equal(other, key); };
    evaluator.count_work(keys.size());
    if (std::ranges::any_of(keys, is_key)) continue;
    evaluator.count_items(2);
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return Value::list(std::move(kept));
}

Value extreme(Evaluator& evaluator, const Value& input, const CallArguments& arguments,
              bool least) {
  const auto given = arguments.bind("the filter", {"case_sensitive", "attribute"});
  const auto items = evaluator.items_of(input);
  if (items->items.empty()) return Value::undefined("an extreme of nothing");
  const Value list = sorted(evaluator, items->items, !least, !is_true_argument(given[0]), given[1]);
  return list.as_list()->items.front();
}

Value filter_min(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  return extreme(evaluator, input, arguments, /*least=*/true);
}

Value filter_max(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  return extreme(evaluator, input, arguments, /*least=*/false);
}

Value filter_sum(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  const auto given = arguments.bind("the filter sum", {"attribute", "start"});
  Value total = given[1] != nullptr ? *given[1] : Value::integer(0);
  const auto sequence = evaluator.items_of(input);
  for (const Value& item : sequence->items)
    total = arithmetic(evaluator, "+", total, attribute_of(evaluator, item, given[0]));
  return total;
}

// Returns the arguments from `first` on.
CallArguments rest_of(Evaluator& evaluator, const CallArguments& arguments, size_t first) {
  evaluator.count_items(arguments.positional.size() + arguments.named.size());
  CallArguments rest;
  rest.named = arguments.named;
  for (size_t i = first; i < arguments.positional.size(); ++i)
    rest.positional.push_back(arguments.positional[i]);
  return rest;
}

Value filter_map(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  std::vector<Value> out;
  if (!input.is_true()) return Value::list({});  // also none, as in Jinja
  const auto items = evaluator.items_of(input);
  evaluator.count_items(items->items.size());
  if (arguments.positional.empty()) {
    const auto given = arguments.bind("the filter map", {"attribute", "default"}, 1);
    for (const Value& item : items->items) {
      Value value = attribute_of(evaluator, item, given[0]);
      if (value.is_undefined() && given[1] != nullptr) value = *given[1];
      out.push_back(std::move(value));
    }
  } else {
    const std::string name = evaluator.text_of(arguments.positional[0]);
    const CallArguments rest = rest_of(evaluator, arguments, 1);
    for (const Value& item : items->items) out.push_back(evaluator.apply_filter(name, item, rest));
  }
  return Value::list(std::move(out));
}

// select, reject, selectattr and rejectattr: keeps the items for which a test of the item, or of
// its attribute, gives `wanted`.
Value selected(Evaluator& evaluator, const Value& input, const CallArguments& arguments,
               bool by_attribute, bool wanted) {
  const size_t test_at = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty())
    throw TemplateError("the filters selectattr and rejectattr need an attribute");
  const Value* const attribute = by_attribute ? arguments.positional.data() : nullptr;
  const bool has_test = arguments.positional.size() > test_at;
  const std::string test = has_test ? evaluator.text_of(arguments.positional[test_at]) : "";
  const CallArguments rest = rest_of(evaluator, arguments, test_at + 1);
  std::vector<Value> out;
  if (!input.is_true()) return Value::list({});
  const auto sequence = evaluator.items_of(input);
  for (const Value& item : sequence->items) {
    evaluator.count_items(1);
    const Value value = attribute_of(evaluator, item, attribute);
    const bool passes = has_test ? evaluator.apply_test(test, value, rest) : value.is_true();
    if (passes == wanted) out.push_back(item);
  }
  return Value::list(std::move(out));
}

template <bool by_attribute, bool wanted>
Value filter_select(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  return selected(evaluator, input, arguments, by_attribute, wanted);
}

constexpr Filter kListFilters[] = {
    {"count", filter_length},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_as_list},
    {"map", filter_map},
    {"max", filter_max},
    {"min", filter_min},
    {"reject", filter_select<false, false>},
    {"rejectattr", filter_select<true, false>},
    {"reverse", filter_reverse},
    {"select", filter_select<false, true>},
    {"selectattr", filter_select<true, true>},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

std::span<const Filter> list_filters() { return kListFilters; }

}  // namespace muster::trainer::chat
