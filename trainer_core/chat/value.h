// The values of a template (template.h): Python's, as far as templates use them. Lists and dicts
// cannot be changed, as in Jinja's immutable sandbox, so values share them.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

namespace muster::trainer::chat {

// An error of a template while it is parsed or evaluated. template.cc catches it.
class TemplateError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The maximum nesting of lists and dicts. It bounds the stack of code that walks a value, and of
// the destructor.
constexpr int kValueDepthMax = 100;
// The maximum cost (Value::cost) of a list or dict. Lists share their items, so a small template
// could make a list of 2^60 items.
constexpr size_t kValueCostMax = 64 << 20;
// The maximum bytes of the text of a list or dict.
constexpr size_t kValueTextBytesMax = 64 << 20;

class Value;
struct Macro;
struct Namespace;

// The value of a missing variable, item or attribute.
struct Undefined {
  std::shared_ptr<const std::string> name;  // for messages
};
struct None {};
struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;
  size_t cost = 1;
};
struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // in order of insertion; keys are unique
  int depth = 1;
  size_t cost = 1;
};
// The state of a for loop: the variable `loop`.
struct Loop {
  std::shared_ptr<const List> items;
  size_t index = 0;
};
struct Function;

// A value. Copies share strings, lists and dicts. Namespaces and macros belong to the evaluator.
class Value {
 public:
  using Data =
      std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>,
                   std::shared_ptr<const List>, std::shared_ptr<const Dict>, Namespace*,
                   std::shared_ptr<const Loop>, std::shared_ptr<const Function>>;

  Value() = default;
  explicit Value(Data data) : data_(std::move(data)) {}

  static Value undefined(std::string name) {
    return Value(Data(Undefined{std::make_shared<const std::string>(std::move(name))}));
  }
  static Value none() { return Value(Data(None{})); }
  static Value boolean(bool value) { return Value(Data(value)); }
  static Value integer(int64_t value) { return Value(Data(value)); }
  static Value real(double value) { return Value(Data(value)); }
  static Value text(std::string value) {
    return Value(Data(std::make_shared<const std::string>(std::move(value))));
  }
  // Throw TemplateError if the value is nested deeper than kValueDepthMax, or LimitError if it
  // costs more than kValueCostMax.
  static Value list(std::vector<Value> items, bool is_tuple = false);
  static Value dict(std::vector<std::pair<Value, Value>> entries);
  // Converts JSON. Throws TemplateError for an integer above 2^63 - 1 and for deep nesting.
  static Value of(const nlohmann::ordered_json& json, int level = 0);

  template <class T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<None>() != nullptr; }
  // Return the object, or null for a value of another type. A bool is an integer, as in Python.
  const std::string* as_text() const { return pointer<std::string>(); }
  const List* as_list() const { return pointer<List>(); }
  const Dict* as_dict() const { return pointer<Dict>(); }
  const Loop* as_loop() const { return pointer<Loop>(); }
  const Function* as_function() const { return pointer<Function>(); }
  Namespace* as_namespace() const {
    const auto* const found = get<Namespace*>();
    return found == nullptr ? nullptr : *found;
  }
  bool is_integer() const { return get<int64_t>() != nullptr || get<bool>() != nullptr; }
  bool is_number() const { return is_integer() || get<double>() != nullptr; }
  // Require is_integer() and is_number().
  int64_t as_integer() const;
  double as_real() const;
  int depth() const;
  // Returns a bound on the work of comparing the value or writing it as a text: its bytes and all
  // values in it.
  size_t cost() const;

  // Returns the name of the type as Python has it: "str", "int", "NoneType".
  std::string_view type_name() const;
  // Returns Python's bool(value).
  bool is_true() const;

 private:
  template <class T>
  const T* pointer() const {
    const auto* const found = std::get_if<std::shared_ptr<const T>>(&data_);
    return found == nullptr ? nullptr : found->get();
  }

  Data data_;
};

// The object that namespace() returns.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

// Something that can be called: a global function or a method by its name, or a macro.
struct Function {
  std::string name;
  Value self;                    // the object of a method
  const Macro* macro = nullptr;  // set for a macro
};

// Return Python's str(value) and repr(value). Throw TemplateError for a namespace, and
// LimitError above kValueTextBytesMax.
std::string to_text(const Value& value);
std::string to_repr(const Value& value);
// Returns Python's repr of a float.
std::string real_repr(double value);

// Returns Python's a == b.
bool equal(const Value& a, const Value& b);
// Returns Python's a < b. Throws TemplateError for types that have no order.
bool less(const Value& a, const Value& b);

// Returns the entry's value, or null if a dict has no such key.
const Value* find_key(const Dict& dict, const Value& key);
const Value* find_key(const Dict& dict, std::string_view key);

// The options of json.dumps().
struct JsonStyle {
  bool ensure_ascii = false;
  int64_t indent = -1;  // -1: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// Returns json.dumps(value). Throws TemplateError for a value that JSON does not have, and
// LimitError above kValueTextBytesMax.
std::string to_json_text(const Value& value, const JsonStyle& style);

}  // namespace muster::trainer::chat
