// Evaluates a parsed template (parser.h).
#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer_core/chat/nodes.h"
#include "trainer_core/chat/template.h"
#include "trainer_core/chat/value.h"

namespace muster::trainer::chat {

// The evaluated arguments of a call.
struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // Returns the values of the parameters `names`; null: not given. Throws TemplateError for an
  // argument that is not among them, and if one of the first `required` is missing. `what` names
  // the callee: "the filter join". The result is valid as long as the arguments.
  std::vector<const Value*> bind(std::string_view what, std::initializer_list<const char*> names,
                                 size_t required = 0) const;
};

// The variables of a template, a loop's iteration or a macro's call.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;

  void set(const std::string& name, Value value);
};

struct Macro {
  const Statement* definition = nullptr;  // kMacro or kCallBlock
  std::shared_ptr<Scope> scope;           // in which it was defined
};

// The evaluation of one template, once. The filters, tests, methods and functions call it for
// limits and conversions. All methods throw TemplateError.
class Evaluator {
 public:
  Evaluator(const Statements& statements, const RenderOptions& options);

  // Renders the template with these variables.
  Rendered run(const Dict& variables);
  // Returns the line of the statement or expression that is being evaluated.
  int line() const { return line_; }
  const RenderOptions& options() const { return options_; }

  // Counts work, and throws if it exceeds the limits.
  void count_work(size_t units);
  // Counts the work and memory of a list with so many items, before it is made.
  void count_items(size_t items);
  // Return to_text(value), equal(a, b), less(a, b) and find_key(dict, key), and count the work.
  std::string text_of(const Value& value);
  bool are_equal(const Value& a, const Value& b);
  bool is_less(const Value& a, const Value& b);
  const Value* find(const Dict& dict, const Value& key);
  // Makes a text and counts its bytes.
  Value text(std::string value);
  // Returns the items of a list, the keys of a dict, or the characters of a text.
  std::shared_ptr<const List> items_of(const Value& value);
  // Return `value.name` and `value[key]`; Undefined if there is none.
  Value attribute(const Value& value, const std::string& name);
  Value item(const Value& value, const Value& key);
  // Returns Python's len(value).
  size_t length(const Value& value);
  // Returns Python's `needle in haystack`.
  bool contains(const Value& haystack, const Value& needle);
  // Throws for a missing value, as most operations do.
  void require_defined(const Value& value) const;
  Value call(const Value& callee, const CallArguments& arguments);
  Value apply_filter(const std::string& name, const Value& input, const CallArguments& arguments);
  bool apply_test(const std::string& name, const Value& input, const CallArguments& arguments);
  Namespace* make_namespace() {
    count_items(4);
    return &namespaces_.emplace_back();
  }

 private:
  // The maximum depth of the evaluator's recursion. It bounds its stack: a level takes at most some
  // 1 KiB.
  static constexpr int kDepthMax = 600;

  enum class Flow { kNext, kBreak, kContinue };

  // Goes one level deeper, and throws if that is too deep. The caller decrements depth_; an error
  // ends the evaluation.
  void go_deeper();
  // Counts the depth of the object's scope; the constructor throws if it is too deep.
  class Deeper;
  // Makes a new scope for the lifetime of the object.
  class NewScope;

  Flow execute(const Statements& statements);
  Flow execute(const Statement& node);
  Flow execute_if(const Statement& node);
  Flow execute_for(const Statement& node);
  void execute_generation(const Statement& node);
  // Assign a value to the statement's names, and to one of them.
  void assign(const Statement& node, const Value& value);
  void assign_one(const Statement& node, size_t i, const Value& value);
  // Executes statements in a new scope, and returns their output.
  std::string captured(const Statements& statements);
  Value filtered(const Expression* filters, Value input);
  Value make_macro(const Statement& node);
  Value call_macro(const Macro& macro, const CallArguments& arguments);
  void put(std::string_view text);

  Value evaluate(const Expression& node);
  Value evaluate_parts(const Expression& node);
  Value look_up(const std::string& name);
  Value evaluate_slice(const Expression& node);
  Value evaluate_unary(const Expression& node);
  Value evaluate_binary(const Expression& node);
  Value evaluate_compare(const Expression& node);
  bool compare(const std::string& name, const Value& left, const Value& right);
  CallArguments evaluate_arguments(const Arguments& arguments);

  const Statements& statements_;
  const RenderOptions& options_;
  std::shared_ptr<Scope> scope_;
  std::deque<Namespace> namespaces_;
  std::deque<Macro> macros_;
  std::string* out_ = nullptr;  // the output of the template or of a block
  Rendered rendered_;
  uint64_t work_ = 0;
  int depth_ = 0;
  int line_ = 1;
};

// Returns the result of a global function, or of a method of a str, list, dict or loop.
Value call_function(Evaluator& evaluator, const std::string& name, const CallArguments& arguments);
Value call_method(Evaluator& evaluator, const Function& method, const CallArguments& arguments);
// Return whether there is such a global function or method.
bool has_function(const Evaluator& evaluator, std::string_view name);
bool has_method(const Value& value, std::string_view name);

// Returns left op right of numbers, and of texts and lists where Python has it.
Value arithmetic(Evaluator& evaluator, std::string_view op, const Value& left, const Value& right);
// Returns value[begin : end : step] of a text or list; null: not given.
Value slice(Evaluator& evaluator, const Value& value, const Value& begin, const Value& end,
            const Value& step);

}  // namespace muster::trainer::chat
