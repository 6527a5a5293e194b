#include "trainer_core/chat/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/chat/characters.h"

namespace muster::trainer::chat {
namespace {

// The largest indent of tojson and indent.
constexpr int64_t kIndentMax = 64;

bool is_set(const Value* value) { return value != nullptr && value->is_true(); }

int64_t number_or(const Value* value, int64_t otherwise) {
  if (value == nullptr || value->is_none()) return otherwise;
  if (!value->is_integer()) throw TemplateError("a filter's argument is no integer");
  return value->as_integer();
}

Value filter_default(Evaluator&, const Value& input, const CallArguments& arguments) {
  const auto given = arguments.bind("the filter default", {"default_value", "boolean"});
  if (!input.is_undefined() && !(is_set(given[1]) && !input.is_true())) return input;
  return given[0] != nullptr ? *given[0] : Value::text("");
}

Value filter_trim(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  const auto given = arguments.bind("the filter trim", {"chars"});
  const std::string text = evaluator.text_of(input);
  std::string set;
  if (given[0] != nullptr && !given[0]->is_none()) set = evaluator.text_of(*given[0]);
  evaluator.count_work(text.size() * (set.size() + 1) / 8);
  const bool has_set = given[0] != nullptr && !given[0]->is_none();
  return evaluator.text(std::string(
      strip(text, has_set ? std::optional<std::string_view>(set) : std::nullopt, true, true)));
}

template <std::string (*convert)(std::string_view)>
Value filter_case(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  arguments.bind("the filter", {});
  const std::string text = evaluator.text_of(input);
  evaluator.count_work(text.size());
  return evaluator.text(convert(text));
}

// Jinja's filter title capitalizes words behind white space, "-", "(", "{", "[" and "<".
std::string title_words(std::string_view text) {
  std::string out;
  bool begins = true;
  std::string word;
  const auto flush = [&] {
    out += capitalize(word);
    word.clear();
  };
  for (const char32_t c : Characters(text)) {
    const bool separates =
        is_space(c) || c == U'-' || c == U'(' || c == U'{' || c == U'[' || c == U'<';
    if (separates != begins) flush();
    begins = separates;
    append_character(c, word);
  }
  flush();
  return out;
}

Value filter_string(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  arguments.bind("the filter string", {});
  return evaluator.text(evaluator.text_of(input));
}

Value filter_replace(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  const auto given = arguments.bind("the filter replace", {"old", "new", "count"}, 2);
  CallArguments of_method;
  of_method.positional = {Value::text(evaluator.text_of(*given[0])),
                          Value::text(evaluator.text_of(*given[1]))};
  if (given[2] != nullptr && !given[2]->is_none()) of_method.positional.push_back(*given[2]);
  return call_method(evaluator, {"replace", evaluator.text(evaluator.text_of(input)), nullptr},
                     of_method);
}

Value filter_tojson(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  const auto given =
      arguments.bind("the filter tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = is_set(given[0]);
  style.indent = number_or(given[1], -1);
  if (style.indent > kIndentMax)
    throw TemplateError(absl::StrCat("the filter tojson has an indent above ", kIndentMax));
  if (given[2] != nullptr && !given[2]->is_none()) {
    const auto parts = evaluator.items_of(*given[2]);
    if (parts->items.size() != 2)
      throw TemplateError("the separators of the filter tojson are not two texts");
    // Texts with an indent keep their separators as they are.
    style.item_separator = evaluator.text_of(parts->items[0]);
    style.key_separator = evaluator.text_of(parts->items[1]);
  } else if (style.indent >= 0) {
    style.item_separator.assign(1, ',');
  }
  style.sort_keys = is_set(given[3]);
  evaluator.count_work(input.cost());
  return evaluator.text(to_json_text(input, style));
}

Value filter_indent(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  const auto given = arguments.bind("the filter indent", {"width", "first", "blank"});
  std::string indent;
  if (given[0] != nullptr && given[0]->as_text() != nullptr) {
    indent = *given[0]->as_text();
  } else {
    const int64_t width = number_or(given[0], 4);
    if (width > kIndentMax)
      throw TemplateError(absl::StrCat("the filter indent has a width above ", kIndentMax));
    indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  evaluator.require_defined(input);
  if (input.as_text() == nullptr) throw TemplateError("the filter indent needs a str");
  const std::string text = *input.as_text() + "\n";
  std::vector<std::string_view> lines = split_lines(text, /*keep_ends=*/false);
  evaluator.count_work(lines.size() * (indent.size() + 1));
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    const bool is_indented =
        (i > 0 || is_set(given[1])) &&
        (!lines[i].empty() || is_set(given[2]) || (i == 0 && is_set(given[1])));
    if (is_indented) out += indent;
    out += lines[i];
  }
  return evaluator.text(std::move(out));
}

Value filter_int(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  evaluator.require_defined(input);
  const auto given = arguments.bind("the filter int", {"default", "base"});
  const Value otherwise = given[0] != nullptr ? *given[0] : Value::integer(0);
  if (input.is_integer()) return Value::integer(input.as_integer());
  double real = 0;
  if (const std::string* const text = input.as_text()) {
    const std::string_view digits = strip(*text, {}, true, true);
    int64_t value = 0;
    const std::string_view unsigned_digits = digits.starts_with('+') ? digits.substr(1) : digits;
    const auto end = unsigned_digits.data() + unsigned_digits.size();
    const auto base = static_cast<int>(number_or(given[1], 10));
    if (base < 2 || base > 36) throw TemplateError("the filter int needs a base of 2 to 36");
    const auto parsed = std::from_chars(unsigned_digits.data(), end, value, base);
    if (parsed.ec == std::errc() && parsed.ptr == end && !unsigned_digits.empty())
      return Value::integer(value);
    if (!absl::SimpleAtod(av(digits), &real)) return otherwise;
  } else if (input.is_number()) {
    real = input.as_real();
  } else {
    return otherwise;
  }
  if (!(std::abs(real) < 0x1p63)) return otherwise;
  return Value::integer(static_cast<int64_t>(real));
}

Value filter_float(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  evaluator.require_defined(input);
  const auto given = arguments.bind("the filter float", {"default"});
  if (input.is_number()) return Value::real(input.as_real());
  double value = 0;
  if (const std::string* const text = input.as_text();
      text != nullptr && absl::SimpleAtod(*text, &value))
    return Value::real(value);
  return given[0] != nullptr ? *given[0] : Value::real(0);
}

Value filter_abs(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  arguments.bind("the filter abs", {});
  evaluator.require_defined(input);
  if (!input.is_number()) throw TemplateError("the filter abs needs a number");
  if (!input.is_integer()) return Value::real(std::abs(input.as_real()));
  if (input.as_integer() == std::numeric_limits<int64_t>::min())
    throw TemplateError("the result of an operation on integers exceeds 64 bits");
  return Value::integer(std::abs(input.as_integer()));
}

// Returns Python's round(value, precision): the decimal number nearest to the exact value.
double rounded(double value, int precision) {
  if (!std::isfinite(value)) return value;
  char digits[400];
  const auto end =
      std::to_chars(digits, digits + sizeof(digits), value, std::chars_format::fixed, precision);
  double result = 0;
  std::from_chars(digits, end.ptr, result);
  return result;
}

Value filter_round(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  const auto given = arguments.bind("the filter round", {"precision", "method"});
  evaluator.require_defined(input);
  if (!input.is_number()) throw TemplateError("the filter round needs a number");
  const int64_t precision = number_or(given[0], 0);
  if (precision < 0 || precision > 15)
    throw TemplateError("the filter round needs a precision of 0 to 15");
  const std::string method = given[1] != nullptr ? evaluator.text_of(*given[1]) : "common";
  if (method == "common") {
    if (input.is_integer()) return Value::integer(input.as_integer());
    return Value::real(rounded(input.as_real(), static_cast<int>(precision)));
  }
  const double factor = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_real() * factor;
  if (method == "ceil") return Value::real(std::ceil(scaled) / factor);
  if (method == "floor") return Value::real(std::floor(scaled) / factor);
  throw TemplateError("the method of the filter round is common, ceil or floor");
}

Value filter_wordcount(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  arguments.bind("the filter wordcount", {});
  const std::string text = evaluator.text_of(input);
  evaluator.count_work(text.size());
  int64_t words = 0;
  bool in_word = false;
  for (const char32_t c : Characters(text)) {
    const bool is_part = is_letter(c) || is_digit(c) || c == U'_';
    words += is_part && !in_word ? 1 : 0;
    in_word = is_part;
  }
  return Value::integer(words);
}

Value filter_safe(Evaluator& evaluator, const Value& input, const CallArguments& arguments) {
  arguments.bind("the filter safe", {});
  return evaluator.text(evaluator.text_of(input));
}

constexpr Filter kScalarFilters[] = {
    {"abs", filter_abs},
    {"capitalize", filter_case<capitalize>},
    {"d", filter_default},
    {"default", filter_default},
    {"float", filter_float},
    {"indent", filter_indent},
    {"int", filter_int},
    {"lower", filter_case<lower>},
    {"replace", filter_replace},
    {"round", filter_round},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", filter_case<title_words>},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"upper", filter_case<upper>},
    {"wordcount", filter_wordcount},
};

}  // namespace

std::span<const Filter> scalar_filters() { return kScalarFilters; }

Value Evaluator::apply_filter(const std::string& name, const Value& input,
                              const CallArguments& arguments) {
  go_deeper();  // map applies filters
  for (const auto table : {scalar_filters(), list_filters()}) {
    for (const Filter& filter : table) {
      if (name != filter.name) continue;
      Value result = filter.apply(*this, input, arguments);
      --depth_;
      return result;
    }
  }
  throw TemplateError(absl::StrCat("there is no filter \"", name, "\""));
}

}  // namespace muster::trainer::chat
