#include "trainer_core/chat/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/chat/limit_error.h"

namespace muster::trainer::chat {
namespace {

int checked_depth(int below) {
  if (below < kValueDepthMax) return below + 1;
  throw TemplateError(absl::StrCat("a value is nested deeper than ", kValueDepthMax, " levels"));
}

// Throws if the cost of a list or dict that is being made is too high.
void check_cost(size_t cost) {
  if (cost <= kValueCostMax) return;
  throw LimitError(absl::StrCat("a list or dict has more than ", kValueCostMax,
                                " bytes and values, with those in its items"));
}

bool is_same_kind(const Value& a, const Value& b) {
  return (a.as_list() != nullptr && b.as_list() != nullptr &&
          a.as_list()->is_tuple == b.as_list()->is_tuple);
}

}  // namespace

Value Value::list(std::vector<Value> items, bool is_tuple) {
  int depth = 0;
  size_t cost = 1;
  for (const Value& item : items) {
    depth = std::max(depth, item.depth());
    check_cost(cost += item.cost());
  }
  return Value(Data(
      std::make_shared<const List>(List{std::move(items), is_tuple, checked_depth(depth), cost})));
}

Value Value::dict(std::vector<std::pair<Value, Value>> entries) {
  int depth = 0;
  // The comparison of dicts compares each key with all keys.
  size_t cost = 1 + entries.size() * entries.size();
  check_cost(cost);
  for (const auto& [key, value] : entries) {
    depth = std::max({depth, key.depth(), value.depth()});
    check_cost(cost += key.cost() * (1 + entries.size() / 16) + value.cost());
  }
  return Value(
      Data(std::make_shared<const Dict>(Dict{std::move(entries), checked_depth(depth), cost})));
}

Value Value::of(const nlohmann::ordered_json& json, int level) {
  checked_depth(level);
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return boolean(json.get<bool>());
    case Type::number_integer:
      return integer(json.get<int64_t>());
    case Type::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        throw TemplateError(absl::StrCat("the integer ", json.get<uint64_t>(),
                                         " is too large; the largest is 2^63 - 1"));
      return integer(json.get<int64_t>());
    case Type::number_float:
      return real(json.get<double>());
    case Type::string:
      return text(json.get<std::string>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(of(item, level + 1));
      return list(std::move(items));
    }
    case Type::object: {
      std::vector<std::pair<Value, Value>> entries;
      entries.reserve(json.size());
      for (const auto& [key, value] : json.items())
        entries.emplace_back(text(key), of(value, level + 1));
      return dict(std::move(entries));
    }
    default:
      return none();
  }
}

int64_t Value::as_integer() const {
  const bool* const truth = get<bool>();
  return truth != nullptr ? int64_t{*truth} : *get<int64_t>();
}

double Value::as_real() const {
  const double* const value = get<double>();
  return value != nullptr ? *value : static_cast<double>(as_integer());
}

int Value::depth() const {
  if (const List* const found = as_list()) return found->depth;
  if (const Dict* const found = as_dict()) return found->depth;
  if (const Loop* const found = as_loop()) return checked_depth(found->items->depth);
  if (const Function* const found = as_function()) return checked_depth(found->self.depth());
  return 0;
}

size_t Value::cost() const {
  if (const std::string* const found = as_text()) return 1 + found->size();
  if (const List* const found = as_list()) return found->cost;
  if (const Dict* const found = as_dict()) return found->cost;
  return 1;
}

std::string_view Value::type_name() const {
  if (as_list() != nullptr) return as_list()->is_tuple ? "tuple" : "list";
  constexpr std::string_view kNames[] = {"undefined", "None", "bool",      "int",  "float",   "str",
                                         "list",      "dict", "namespace", "loop", "function"};
  return kNames[data_.index()];
}

bool Value::is_true() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return as_real() != 0;
  if (const std::string* const found = as_text()) return !found->empty();
  if (const List* const found = as_list()) return !found->items.empty();
  if (const Dict* const found = as_dict()) return !found->entries.empty();
  if (const Loop* const found = as_loop()) return !found->items->items.empty();
  return true;
}

std::string real_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string_view shortest(buffer, static_cast<size_t>(end.ptr - buffer));
  std::string out;
  if (shortest.starts_with('-')) {
    out = "-";
    shortest.remove_prefix(1);
  }
  const size_t e = shortest.find('e');
  int exponent = 0;
  std::string_view power = shortest.substr(e + 1);
  if (power.starts_with('+')) power.remove_prefix(1);
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string digits(shortest.substr(0, 1));
  if (e > 1) digits += shortest.substr(2, e - 2);
  const auto count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    absl::StrAppend(&out, digits.substr(0, 1));
    if (count > 1) absl::StrAppend(&out, ".", digits.substr(1));
    const int size = std::abs(exponent);
    absl::StrAppend(&out, exponent < 0 ? "e-" : "e+", size < 10 ? "0" : "", size);
  } else if (exponent < 0) {
    absl::StrAppend(&out, "0.", std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  } else if (count > exponent + 1) {
    const auto whole = static_cast<size_t>(exponent + 1);
    absl::StrAppend(&out, digits.substr(0, whole), ".", digits.substr(whole));
  } else {
    absl::StrAppend(&out, digits, std::string(static_cast<size_t>(exponent + 1 - count), '0'),
                    ".0");
  }
  return out;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.as_integer() == b.as_integer();
    return a.as_real() == b.as_real();
  }
  if (a.as_text() != nullptr && b.as_text() != nullptr) return *a.as_text() == *b.as_text();
  if (is_same_kind(a, b)) {
    return std::ranges::equal(a.as_list()->items, b.as_list()->items,
                              [](const Value& x, const Value& y) { return equal(x, y); });
  }
  if (a.as_dict() != nullptr && b.as_dict() != nullptr) {
    const Dict& left = *a.as_dict();
    const Dict& right = *b.as_dict();
    if (left.entries.size() != right.entries.size()) return false;
    return std::ranges::all_of(left.entries, [&](const auto& entry) {
      const Value* const other = find_key(right, entry.first);
      return other != nullptr && equal(entry.second, *other);
    });
  }
  if (a.is_undefined() && b.is_undefined()) return true;
  if (a.is_none() && b.is_none()) return true;
  if (a.as_namespace() != nullptr) return a.as_namespace() == b.as_namespace();
  return false;
}

bool less(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.as_integer() < b.as_integer();
    return a.as_real() < b.as_real();
  }
  // The order of UTF-8 is that of the code points.
  if (a.as_text() != nullptr && b.as_text() != nullptr) return *a.as_text() < *b.as_text();
  if (is_same_kind(a, b)) {
    const auto& left = a.as_list()->items;
    const auto& right = b.as_list()->items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equal(left[i], right[i])) return less(left[i], right[i]);
    }
    return left.size() < right.size();
  }
  throw TemplateError(
      absl::StrCat("cannot compare ", av(a.type_name()), " with ", av(b.type_name())));
}

const Value* find_key(const Dict& dict, const Value& key) {
  for (const auto& [candidate, value] : dict.entries) {
    if (equal(candidate, key)) return &value;
  }
  return nullptr;
}

const Value* find_key(const Dict& dict, std::string_view key) {
  for (const auto& [candidate, value] : dict.entries) {
    if (candidate.as_text() != nullptr && *candidate.as_text() == key) return &value;
  }
  return nullptr;
}

}  // namespace muster::trainer::chat
