// Arithmetic and slices.
#include <algorithm>
#include <cmath>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/chat/characters.h"
#include "trainer_core/chat/evaluator.h"

namespace muster::trainer::chat {
namespace {

[[noreturn]] void too_large() {
  throw TemplateError("the result of an operation on integers exceeds 64 bits");
}

[[noreturn]] void divided_by_zero() { throw TemplateError("a division by zero"); }

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) divided_by_zero();
  if (b == -1) {
    int64_t negated = 0;
    if (__builtin_sub_overflow(int64_t{0}, a, &negated)) too_large();
    return negated;
  }
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

Value power(const Value& left, const Value& right) {
  const bool is_whole = left.is_integer() && right.is_integer() && right.as_integer() >= 0;
  if (!is_whole) {
    if (left.as_real() == 0 && right.as_real() < 0) divided_by_zero();
    if (left.as_real() < 0 && right.as_real() != std::floor(right.as_real()))
      throw TemplateError("a power of a negative number is complex");
    const double result = std::pow(left.as_real(), right.as_real());
    const bool overflows =
        std::isinf(result) && std::isfinite(left.as_real()) && std::isfinite(right.as_real());
    if (overflows) throw TemplateError("the result of a power is too large");
    return Value::real(result);
  }
  int64_t result = 1;
  int64_t factor = left.as_integer();
  for (int64_t rest = right.as_integer(); rest > 0; rest /= 2) {
    if (rest % 2 == 1 && __builtin_mul_overflow(result, factor, &result)) too_large();
    if (rest > 1 && __builtin_mul_overflow(factor, factor, &factor)) too_large();
  }
  return Value::integer(result);
}

Value whole_arithmetic(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") {
    if (__builtin_add_overflow(a, b, &result)) too_large();
  } else if (op == "-") {
    if (__builtin_sub_overflow(a, b, &result)) too_large();
  } else if (op == "*") {
    if (__builtin_mul_overflow(a, b, &result)) too_large();
  } else if (op == "//") {
    result = floor_divide(a, b);
  } else if (op == "%") {
    if (b == 0) divided_by_zero();
    result = b == -1 ? 0 : a % b;
    if (result != 0 && (result < 0) != (b < 0)) result += b;
  } else {
    if (b == 0) divided_by_zero();
    return Value::real(static_cast<double>(a) / static_cast<double>(b));
  }
  return Value::integer(result);
}

Value real_arithmetic(std::string_view op, double a, double b) {
  if (op == "+") return Value::real(a + b);
  if (op == "-") return Value::real(a - b);
  if (op == "*") return Value::real(a * b);
  if (b == 0) divided_by_zero();
  if (op == "//") return Value::real(std::floor(a / b));
  if (op == "%") {
    const double rest = std::fmod(a, b);
    return Value::real(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
  }
  return Value::real(a / b);
}

Value repeated(Evaluator& evaluator, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  const size_t size =
      value.as_text() != nullptr ? value.as_text()->size() : value.as_list()->items.size();
  size_t total = 0;
  if (__builtin_mul_overflow(count, size, &total)) too_large();
  if (value.as_text() != nullptr) {
    evaluator.count_work(total);
  } else {
    evaluator.count_items(total);
  }
  if (total == 0) {
    return value.as_text() != nullptr ? Value::text("")
                                      : Value::list({}, value.as_list()->is_tuple);
  }
  if (const std::string* const text = value.as_text()) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += *text;
    return Value::text(std::move(out));
  }
  std::vector<Value> items;
  for (size_t i = 0; i < count; ++i)
    items.insert(items.end(), value.as_list()->items.begin(), value.as_list()->items.end());
  return Value::list(std::move(items), value.as_list()->is_tuple);
}

// Returns a bound of a slice within [low, high].
int64_t bound(const Value& value, int64_t size, int64_t low, int64_t high, int64_t otherwise) {
  if (value.is_none()) return otherwise;
  if (!value.is_integer()) throw TemplateError("the bounds of a slice are no integers");
  const int64_t at = value.as_integer();
  return std::clamp(at < 0 ? std::max(at, -size - 1) + size : at, low, high);
}

}  // namespace

Value arithmetic(Evaluator& evaluator, std::string_view op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    if (op == "**") return power(left, right);
    if (left.is_integer() && right.is_integer())
      return whole_arithmetic(op, left.as_integer(), right.as_integer());
    return real_arithmetic(op, left.as_real(), right.as_real());
  }
  if (op == "+" && left.as_text() != nullptr && right.as_text() != nullptr)
    return evaluator.text(*left.as_text() + *right.as_text());
  if (op == "+" && left.as_list() != nullptr && right.as_list() != nullptr &&
      left.as_list()->is_tuple == right.as_list()->is_tuple) {
    evaluator.count_items(left.as_list()->items.size() + right.as_list()->items.size());
    std::vector<Value> items = left.as_list()->items;
    items.insert(items.end(), right.as_list()->items.begin(), right.as_list()->items.end());
    return Value::list(std::move(items), left.as_list()->is_tuple);
  }
  const auto is_sequence = [](const Value& value) {
    return value.as_text() != nullptr || value.as_list() != nullptr;
  };
  if (op == "*" && is_sequence(left) && right.is_integer())
    return repeated(evaluator, left, right.as_integer());
  if (op == "*" && left.is_integer() && is_sequence(right))
    return repeated(evaluator, right, left.as_integer());
  throw TemplateError(
      absl::StrCat("there is no ", av(left.type_name()), " ", av(op), " ", av(right.type_name())));
}

Value slice(Evaluator& evaluator, const Value& value, const Value& begin, const Value& end,
            const Value& step) {
  if (value.is_undefined()) evaluator.require_defined(value);
  if (value.as_text() == nullptr && value.as_list() == nullptr)
    return Value::undefined(absl::StrCat("a slice of a ", av(value.type_name())));
  const auto size = static_cast<int64_t>(evaluator.length(value));
  if (!step.is_none() && (!step.is_integer() || step.as_integer() == 0))
    throw TemplateError("the step of a slice is no integer other than 0");
  const int64_t stride =
      step.is_none() ? 1 : std::clamp<int64_t>(step.as_integer(), -size - 1, size + 1);
  const bool forward = stride > 0;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? size : size - 1;
  const int64_t from = bound(begin, size, low, high, forward ? low : high);
  const int64_t to = bound(end, size, low, high, forward ? high : low);
  if (const std::string* const text = value.as_text(); text != nullptr && stride == 1) {
    evaluator.count_work(text->size());
    const std::string_view rest =
        std::string_view(*text).substr(offset_of(*text, static_cast<size_t>(from)));
    return evaluator.text(std::string(
        rest.substr(0, offset_of(rest, static_cast<size_t>(std::max<int64_t>(to - from, 0))))));
  }
  const auto items = evaluator.items_of(value);
  std::vector<Value> chosen;
  for (int64_t at = from; forward ? at < to : at > to; at += stride) {
    evaluator.count_items(1);
    chosen.push_back(items->items[static_cast<size_t>(at)]);
  }
  if (value.as_list() != nullptr) return Value::list(std::move(chosen), value.as_list()->is_tuple);
  std::string joined;
  for (const Value& character : chosen) joined += *character.as_text();
  return evaluator.text(std::move(joined));
}

}  // namespace muster::trainer::chat
