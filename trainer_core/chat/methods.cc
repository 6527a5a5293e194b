// The methods of texts, lists, dicts and loops.
#include <algorithm>
#include <iterator>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/chat/characters.h"
#include "trainer_core/chat/evaluator.h"

namespace muster::trainer::chat {
namespace {

constexpr std::string_view kTextMethods[] = {
    "capitalize", "count",   "endswith",   "find",         "index",        "isalnum", "isalpha",
    "isdecimal",  "isdigit", "islower",    "isspace",      "isupper",      "join",    "lower",
    "lstrip",     "replace", "rfind",      "removeprefix", "removesuffix", "rindex",  "rsplit",
    "rstrip",     "split",   "splitlines", "startswith",   "strip",        "title",   "upper"};
constexpr std::string_view kListMethods[] = {"count", "index"};
constexpr std::string_view kDictMethods[] = {"copy", "get", "items", "keys", "values"};
constexpr std::string_view kLoopMethods[] = {"cycle"};
// Methods of Python that change a list, and those that change a dict.
constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};

bool is_in_list(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

const std::string& text_argument(const std::string& what, const Value& value) {
  if (const std::string* const text = value.as_text()) return *text;
  throw TemplateError(absl::StrCat(what, " needs a str instead of a ", av(value.type_name())));
}

int64_t integer_or(const std::string& what, const Value* value, int64_t otherwise) {
  if (value == nullptr) return otherwise;
  if (!value->is_integer()) throw TemplateError(absl::StrCat(what, " needs an integer"));
  return value->as_integer();
}

Value list_of(Evaluator& evaluator, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  evaluator.count_items(3 * parts.size());  // each part is a value and a text
  for (const std::string_view part : parts) items.push_back(evaluator.text(std::string(part)));
  return Value::list(std::move(items));
}

Value split_text(Evaluator& evaluator, const std::string& text, const std::string& name,
                 const CallArguments& arguments) {
  const std::string what = absl::StrCat("str.", name);
  const auto given = arguments.bind(what, {"sep", "maxsplit"});
  const int64_t splits_max = integer_or(what, given[1], -1);
  const bool from_right = name == "rsplit";
  if (given[0] == nullptr || given[0]->is_none()) {
    if (from_right && splits_max >= 0)
      throw TemplateError("str.rsplit with a maximum needs a separator");
    return list_of(evaluator, split_spaces(text, splits_max));
  }
  const std::string& separator = text_argument(what, *given[0]);
  if (separator.empty()) throw TemplateError(absl::StrCat(what, " has an empty separator"));
  return list_of(evaluator, split(text, separator, splits_max, from_right));
}

bool has_end(const std::string& text, const std::string& what, const Value& end, bool at_begin) {
  if (const List* const list = end.as_list(); list != nullptr && list->is_tuple) {
    return std::ranges::any_of(
        list->items, [&](const Value& item) { return has_end(text, what, item, at_begin); });
  }
  const std::string& part = text_argument(what, end);
  return at_begin ? text.starts_with(part) : text.ends_with(part);
}

// str.find() and its kin: the position of the first or last occurrence; -1 if there is none.
int64_t position_in(const std::string& text, const std::string& part, bool last) {
  const size_t at = last ? text.rfind(part) : text.find(part);
  if (at == std::string::npos) return -1;
  return static_cast<int64_t>(character_count(std::string_view(text).substr(0, at)));
}

int64_t count_in(const std::string& text, const std::string& part) {
  if (part.empty()) return static_cast<int64_t>(character_count(text)) + 1;
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

template <class Property>
bool all_are(const std::string& text, const Property& property) {
  if (text.empty()) return false;
  for (const char32_t c : Characters(text)) {
    if (!property(c)) return false;
  }
  return true;
}

Value property_of(const std::string& text, const std::string& name) {
  bool result = false;
  if (name == "isspace") result = all_are(text, is_space);
  if (name == "isalpha") result = all_are(text, is_letter);
  if (name == "isdigit" || name == "isdecimal") result = all_are(text, is_digit);
  if (name == "isalnum")
    result = all_are(text, [](char32_t c) { return is_letter(c) || is_digit(c); });
  if (name == "islower") result = lower(text) == text && upper(text) != text;
  if (name == "isupper") result = upper(text) == text && lower(text) != text;
  return Value::boolean(result);
}

Value join_text(Evaluator& evaluator, const std::string& separator, const Value& items) {
  std::string out;
  bool is_first = true;
  const auto sequence = evaluator.items_of(items);
  for (const Value& item : sequence->items) {
    if (!is_first) out += separator;
    is_first = false;
    const std::string& part = text_argument("str.join", item);
    evaluator.count_work(separator.size() + part.size());
    out += part;
  }
  return Value::text(std::move(out));
}

Value strip_text(Evaluator& evaluator, const std::string& text, const std::string& name,
                 const CallArguments& arguments) {
  const auto given = arguments.bind(absl::StrCat("str.", name), {"chars"});
  std::optional<std::string_view> set;
  if (given[0] != nullptr && !given[0]->is_none()) set = text_argument("str.strip", *given[0]);
  evaluator.count_work(text.size() * (set ? set->size() + 1 : 1) / 8);
  return evaluator.text(std::string(strip(text, set, name != "rstrip", name != "lstrip")));
}

Value call_text_method(Evaluator& evaluator, const std::string& text, const std::string& name,
                       const CallArguments& arguments) {
  evaluator.count_work(text.size());
  const std::string what = absl::StrCat("str.", name);
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return strip_text(evaluator, text, name, arguments);
  if (name == "split" || name == "rsplit") return split_text(evaluator, text, name, arguments);
  if (name == "splitlines") {
    const auto given = arguments.bind(what, {"keepends"});
    return list_of(evaluator, split_lines(text, given[0] != nullptr && given[0]->is_true()));
  }
  if (name == "replace") {
    const auto given = arguments.bind(what, {"old", "new", "count"}, 2);
    const std::string& from = text_argument(what, *given[0]);
    const std::string& to = text_argument(what, *given[1]);
    evaluator.count_work((static_cast<size_t>(count_in(text, from)) + 1) * to.size());
    return evaluator.text(replace(text, from, to, integer_or(what, given[2], -1)));
  }
  if (name == "join") return join_text(evaluator, text, *arguments.bind(what, {"iterable"}, 1)[0]);
  if (name == "startswith" || name == "endswith") {
    const Value& end = *arguments.bind(what, {"prefix"}, 1)[0];
    evaluator.count_work(end.cost());
    return Value::boolean(has_end(text, what, end, name == "startswith"));
  }
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex") {
    const std::string& part = text_argument(what, *arguments.bind(what, {"sub"}, 1)[0]);
    evaluator.count_work(text.size() * part.size() / 64);
    const int64_t at = position_in(text, part, name.starts_with('r'));
    if (at < 0 && name.ends_with("index")) throw TemplateError(what + " does not find the text");
    return Value::integer(at);
  }
  if (name == "count")
    return Value::integer(
        count_in(text, text_argument(what, *arguments.bind(what, {"sub"}, 1)[0])));
  if (name == "removeprefix" || name == "removesuffix") {
    const std::string& part = text_argument(what, *arguments.bind(what, {"part"}, 1)[0]);
    const bool at_begin = name == "removeprefix";
    if (!has_end(text, what, Value::text(part), at_begin)) return evaluator.text(text);
    const size_t rest = text.size() - part.size();
    return evaluator.text(at_begin ? text.substr(part.size()) : text.substr(0, rest));
  }
  arguments.bind(what, {});
  if (name == "upper") return evaluator.text(upper(text));
  if (name == "lower") return evaluator.text(lower(text));
  if (name == "title") return evaluator.text(title(text));
  if (name == "capitalize") return evaluator.text(capitalize(text));
  return property_of(text, name);
}

Value call_list_method(Evaluator& evaluator, const List& list, const std::string& name,
                       const CallArguments& arguments) {
  const std::string what = absl::StrCat("list.", name);
  const Value& wanted = *arguments.bind(what, {"value"}, 1)[0];
  evaluator.count_work(list.items.size());
  const auto is_wanted = [&](const Value& item) { return evaluator.are_equal(item, wanted); };
  if (name == "count") return Value::integer(std::ranges::count_if(list.items, is_wanted));
  const auto found = std::ranges::find_if(list.items, is_wanted);
  if (found == list.items.end()) throw TemplateError(what + " does not find the value");
  return Value::integer(found - list.items.begin());
}

Value call_dict_method(Evaluator& evaluator, const Value& self, const std::string& name,
                       const CallArguments& arguments) {
  const Dict& dict = *self.as_dict();
  const std::string what = absl::StrCat("dict.", name);
  if (name == "get") {
    const auto given = arguments.bind(what, {"key", "default"}, 1);
    if (const Value* const found = evaluator.find(dict, *given[0])) return *found;
    return given[1] != nullptr ? *given[1] : Value::none();
  }
  arguments.bind(what, {});
  if (name == "copy") return self;
  evaluator.count_items(5 * dict.entries.size());  // items() makes a tuple of each entry
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries) {
    items.push_back(name == "keys"     ? key
                    : name == "values" ? value
                                       : Value::list({key, value}, /*is_tuple=*/true));
  }
  return Value::list(std::move(items));
}

bool is_changing(const Value& value, std::string_view name) {
  return (value.as_list() != nullptr && is_in_list(kListChanges, name)) ||
         (value.as_dict() != nullptr && is_in_list(kDictChanges, name));
}

}  // namespace

bool has_method(const Value& value, std::string_view name) {
  if (value.as_text() != nullptr) return is_in_list(kTextMethods, name);
  if (value.as_list() != nullptr) return is_in_list(kListMethods, name) || is_changing(value, name);
  if (value.as_dict() != nullptr) return is_in_list(kDictMethods, name) || is_changing(value, name);
  return value.as_loop() != nullptr && is_in_list(kLoopMethods, name);
}

Value call_method(Evaluator& evaluator, const Function& method, const CallArguments& arguments) {
  const Value& self = method.self;
  if (is_changing(self, method.name)) {
    throw TemplateError(absl::StrCat("a template cannot change a ", av(self.type_name()), " by ",
                                     method.name, "()"));
  }
  if (const std::string* const text = self.as_text())
    return call_text_method(evaluator, *text, method.name, arguments);
  if (const List* const list = self.as_list())
    return call_list_method(evaluator, *list, method.name, arguments);
  if (self.as_dict() != nullptr) return call_dict_method(evaluator, self, method.name, arguments);
  if (arguments.positional.empty()) throw TemplateError("loop.cycle needs a value");
  return arguments.positional[self.as_loop()->index % arguments.positional.size()];
}

}  // namespace muster::trainer::chat
