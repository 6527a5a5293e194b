// The tests: "value is test".
#include <string>

#include <absl/strings/str_cat.h>

#include "trainer_core/chat/characters.h"
#include "trainer_core/chat/evaluator.h"

namespace muster::trainer::chat {
namespace {

bool is_sequence(const Value& value) {
  return value.as_text() != nullptr || value.as_list() != nullptr || value.as_dict() != nullptr ||
         value.is_undefined();
}

struct SimpleTest {
  const char* name;
  bool (*test)(Evaluator&, const Value&);
};

// Returns Python's value % divisor == rest.
bool leaves_rest(Evaluator& evaluator, const Value& value, const Value& divisor, int64_t rest) {
  evaluator.require_defined(value);
  evaluator.require_defined(divisor);
  if (!value.is_number() || !divisor.is_number()) throw TemplateError("the test needs numbers");
  return equal(arithmetic(evaluator, "%", value, divisor), Value::integer(rest));
}

constexpr SimpleTest kSimpleTests[] = {
    {"defined", [](Evaluator&, const Value& v) { return !v.is_undefined(); }},
    {"undefined", [](Evaluator&, const Value& v) { return v.is_undefined(); }},
    {"none", [](Evaluator&, const Value& v) { return v.is_none(); }},
    {"string", [](Evaluator&, const Value& v) { return v.as_text() != nullptr; }},
    {"number", [](Evaluator&, const Value& v) { return v.is_number(); }},
    {"integer", [](Evaluator&, const Value& v) { return v.get<int64_t>() != nullptr; }},
    {"float", [](Evaluator&, const Value& v) { return v.get<double>() != nullptr; }},
    {"boolean", [](Evaluator&, const Value& v) { return v.get<bool>() != nullptr; }},
    {"true", [](Evaluator&, const Value& v) { return v.get<bool>() != nullptr && v.is_true(); }},
    {"false", [](Evaluator&, const Value& v) { return v.get<bool>() != nullptr && !v.is_true(); }},
    {"mapping", [](Evaluator&, const Value& v) { return v.as_dict() != nullptr; }},
    {"sequence", [](Evaluator&, const Value& v) { return is_sequence(v); }},
    {"iterable",
     [](Evaluator&, const Value& v) { return is_sequence(v) || v.as_loop() != nullptr; }},
    // An undefined value is callable in Jinja: the call fails.
    {"callable",
     [](Evaluator&, const Value& v) { return v.as_function() != nullptr || v.is_undefined(); }},
    {"odd", [](Evaluator& e, const Value& v) { return leaves_rest(e, v, Value::integer(2), 1); }},
    {"even", [](Evaluator& e, const Value& v) { return leaves_rest(e, v, Value::integer(2), 0); }},
    {"lower",
     [](Evaluator& e, const Value& v) {
       const std::string text = e.text_of(v);
       e.count_work(text.size());
       return lower(text) == text && upper(text) != text;
     }},
    {"upper",
     [](Evaluator& e, const Value& v) {
       const std::string text = e.text_of(v);
       e.count_work(text.size());
       return upper(text) == text && lower(text) != text;
     }},
};

// Tests with an argument, and their operators.
struct ComparingTest {
  const char* name;
  const char* op;
};
constexpr ComparingTest kComparingTests[] = {
    {"eq", "=="}, {"equalto", "=="},    {"==", "=="},        {"ne", "!="}, {"!=", "!="},
    {"lt", "<"},  {"lessthan", "<"},    {"<", "<"},          {"le", "<="}, {"<=", "<="},
    {"gt", ">"},  {"greaterthan", ">"}, {">", ">"},          {"ge", ">="}, {">=", ">="},
    {"in", "in"}, {"sameas", "sameas"}, {"divisibleby", "%"}};

bool compares(Evaluator& evaluator, std::string_view op, const Value& left, const Value& right) {
  if (op == "in") return evaluator.contains(right, left);
  if (op == "==") return evaluator.are_equal(left, right);
  if (op == "!=") return !evaluator.are_equal(left, right);
  if (op == "sameas")
    return left.type_name() == right.type_name() && evaluator.are_equal(left, right);
  if (op == "%") return leaves_rest(evaluator, left, right, 0);
  evaluator.require_defined(left);
  evaluator.require_defined(right);
  if (op == "<") return evaluator.is_less(left, right);
  if (op == ">") return evaluator.is_less(right, left);
  const bool is_before =
      op == "<=" ? evaluator.is_less(left, right) : evaluator.is_less(right, left);
  return is_before || evaluator.are_equal(left, right);
}

}  // namespace

bool Evaluator::apply_test(const std::string& name, const Value& input,
                           const CallArguments& arguments) {
  const std::string what = absl::StrCat("the test ", name);
  for (const SimpleTest& test : kSimpleTests) {
    if (name != test.name) continue;
    arguments.bind(what, {});
    return test.test(*this, input);
  }
  for (const ComparingTest& test : kComparingTests) {
    if (name == test.name)
      return compares(*this, test.op, input, *arguments.bind(what, {"other"}, 1)[0]);
  }
  throw TemplateError(absl::StrCat("there is no test \"", name, "\""));
}

}  // namespace muster::trainer::chat
