#include "trainer_core/chat/evaluator.h"

#include <algorithm>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/chat/characters.h"
#include "trainer_core/chat/limit_error.h"

namespace muster::trainer::chat {
namespace {

// The maximum depth of the evaluator's recursion. It bounds its stack: a level takes at most some
// 1 KiB.
constexpr int kDepthMax = 600;

}  // namespace

class Evaluator::Deeper {
 public:
  Deeper(Evaluator& evaluator, int line) : evaluator_(evaluator) {
    evaluator_.line_ = line;
    if (++evaluator_.depth_ > kDepthMax)
      throw LimitError(
          absl::StrCat("calls and expressions are nested deeper than ", kDepthMax, " levels"));
    evaluator_.count_work(1);
  }
  ~Deeper() { --evaluator_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Evaluator& evaluator_;
};

class Evaluator::NewScope {
 public:
  explicit NewScope(Evaluator& evaluator) : NewScope(evaluator, evaluator.scope_) {}
  NewScope(Evaluator& evaluator, std::shared_ptr<Scope> parent)
      : evaluator_(evaluator), before_(evaluator.scope_) {
    evaluator_.scope_ = std::make_shared<Scope>(Scope{std::move(parent), {}});
  }
  ~NewScope() { evaluator_.scope_ = before_; }
  NewScope(const NewScope&) = delete;
  NewScope& operator=(const NewScope&) = delete;

 private:
  Evaluator& evaluator_;
  const std::shared_ptr<Scope> before_;
};

void Scope::set(const std::string& name, Value value) {
  for (auto& [candidate, held] : variables) {
    if (candidate == name) {
      held = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

std::vector<const Value*> CallArguments::bind(std::string_view what,
                                              std::initializer_list<const char*> names,
                                              size_t required) const {
  if (positional.size() > names.size()) {
    throw TemplateError(absl::StrCat(av(what), " takes at most ", names.size(), " arguments, not ",
                                     positional.size()));
  }
  std::vector<const Value*> values(names.size(), nullptr);
  for (size_t i = 0; i < positional.size(); ++i) values[i] = &positional[i];
  for (const auto& [name, value] : named) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
      throw TemplateError(absl::StrCat(av(what), " has no argument \"", name, "\""));
    const auto at = static_cast<size_t>(found - names.begin());
    if (values[at] != nullptr)
      throw TemplateError(absl::StrCat(av(what), " has two arguments \"", name, "\""));
    values[at] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values[i] == nullptr)
      throw TemplateError(absl::StrCat(av(what), " needs the argument \"", names.begin()[i], "\""));
  }
  return values;
}

Evaluator::Evaluator(const Statements& statements, const RenderOptions& options)
    : statements_(statements), options_(options), scope_(std::make_shared<Scope>()) {}

Rendered Evaluator::run(const Dict& variables) {
  for (const auto& [name, value] : variables.entries) scope_->set(*name.as_text(), value);
  out_ = &rendered_.text;
  // The template's own variables are in a scope above those of the caller.
  const NewScope own(*this);
  execute(statements_);
  return std::move(rendered_);
}

void Evaluator::count_work(size_t units) {
  work_ += units;
  if (work_ > options_.work_max) {
    throw LimitError(absl::StrCat("the template takes more than ", options_.work_max,
                                  " units of work; it has a loop without a reasonable end"));
  }
}

Value Evaluator::text(std::string value) {
  count_work(value.size());
  return Value::text(std::move(value));
}

void Evaluator::put(std::string_view text) {
  count_work(text.size());
  if (text.size() > options_.output_bytes_max - std::min(out_->size(), options_.output_bytes_max))
    throw LimitError(absl::StrCat("the output exceeds ", options_.output_bytes_max, " bytes"));
  *out_ += text;
}

void Evaluator::require_defined(const Value& value) const {
  const auto* const undefined = value.get<Undefined>();
  if (undefined == nullptr) return;
  throw TemplateError(absl::StrCat(
      undefined->name == nullptr ? "a value" : absl::StrCat("\"", *undefined->name, "\""),
      " is undefined"));
}

Evaluator::Flow Evaluator::execute(const Statements& statements) {
  for (const auto& node : statements) {
    if (const Flow flow = execute(*node); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute(const Statement& node) {
  const Deeper deeper(*this, node.line);
  switch (node.kind) {
    case Statement::Kind::kData:
      put(node.text);
      break;
    case Statement::Kind::kOutput: {
      const Value value = evaluate(*node.condition);
      put(to_text(value));
      break;
    }
    case Statement::Kind::kIf:
      return execute_if(node);
    case Statement::Kind::kFor:
      return execute_for(node);
    case Statement::Kind::kSet:
      execute_set(node);
      break;
    case Statement::Kind::kSetBlock: {
      Value value = text(captured(node.body));
      scope_->set(node.names[0], filtered(node.condition.get(), std::move(value)));
      break;
    }
    case Statement::Kind::kMacro:
      scope_->set(node.text, make_macro(node));
      break;
    case Statement::Kind::kCallBlock: {
      const Value callee = evaluate(*node.condition->parts[0]);
      CallArguments arguments = evaluate_arguments(node.condition->arguments);
      arguments.named.emplace_back("caller", make_macro(node));
      put(to_text(call(callee, arguments)));
      break;
    }
    case Statement::Kind::kFilter: {
      Value value = text(captured(node.body));
      put(to_text(filtered(node.condition.get(), std::move(value))));
      break;
    }
    case Statement::Kind::kWith: {
      // The values do not see each other's names.
      std::vector<Value> values;
      for (const auto& value : node.defaults) values.push_back(evaluate(*value));
      const NewScope own(*this);
      for (size_t i = 0; i < values.size(); ++i) scope_->set(node.names[i], values[i]);
      return execute(node.body);
    }
    case Statement::Kind::kGeneration:
      execute_generation(node);
      break;
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute_if(const Statement& first) {
  for (const Statement* node = &first;;) {
    line_ = node->line;
    if (evaluate(*node->condition).is_true()) return execute(node->body);
    const bool is_elif = node->other.size() == 1 && node->other[0]->kind == Statement::Kind::kIf;
    if (!is_elif) return execute(node->other);
    node = node->other[0].get();
  }
}

Evaluator::Flow Evaluator::execute_for(const Statement& node) {
  std::shared_ptr<const List> items = items_of(evaluate(*node.condition));
  if (node.filter != nullptr) {
    std::vector<Value> kept;
    for (const Value& value : items->items) {
      const NewScope own(*this);
      assign(node, value);
      if (evaluate(*node.filter).is_true()) kept.push_back(value);
    }
    items = std::make_shared<const List>(List{std::move(kept), false, items->depth});
  }
  size_t depth = 1;
  if (const Loop* const outer = look_up("loop").as_loop()) depth = outer->depth + 1;
  for (size_t i = 0; i < items->items.size(); ++i) {
    const NewScope own(*this);
    scope_->set("loop", Value(Value::Data(std::make_shared<const Loop>(Loop{items, i, depth}))));
    assign(node, items->items[i]);
    const Flow flow = execute(node.body);
    if (flow == Flow::kBreak) break;
  }
  if (!items->items.empty()) return Flow::kNext;
  const NewScope own(*this);
  return execute(node.other);
}

void Evaluator::assign(const Statement& node, const Value& value) {
  if (!node.unpacks) {
    scope_->set(node.names[0], value);
    return;
  }
  const auto items = items_of(value);
  if (items->items.size() != node.names.size()) {
    throw TemplateError(absl::StrCat("cannot assign ", items->items.size(), " values to ",
                                     node.names.size(), " names"));
  }
  for (size_t i = 0; i < node.names.size(); ++i) scope_->set(node.names[i], items->items[i]);
}

void Evaluator::execute_set(const Statement& node) {
  Value value = evaluate(*node.condition);
  if (node.text.empty()) return assign(node, value);
  Namespace* const target = look_up(node.text).as_namespace();
  if (target == nullptr)
    throw TemplateError(absl::StrCat("\"", node.text, "\" is no namespace, so \"", node.text, ".",
                                     node.names[0], "\" cannot be set"));
  for (auto& [name, held] : target->attributes) {
    if (name == node.names[0]) {
      held = std::move(value);
      return;
    }
  }
  target->attributes.emplace_back(node.names[0], std::move(value));
}

void Evaluator::execute_generation(const Statement& node) {
  if (out_ != &rendered_.text)
    throw TemplateError("\"generation\" is inside of a macro, a filter or the text of a set");
  const size_t begin = out_->size();
  const NewScope own(*this);
  execute(node.body);
  rendered_.generated.push_back({begin, out_->size()});
}

std::string Evaluator::captured(const Statements& statements) {
  std::string own_output;
  std::string* const before = std::exchange(out_, &own_output);
  const absl::Cleanup restore = [&] { out_ = before; };
  const NewScope own(*this);
  execute(statements);
  return own_output;
}

Value Evaluator::filtered(const Expression* filters, Value input) {
  if (filters == nullptr) return input;
  if (filters->parts[0] != nullptr) input = filtered(filters->parts[0].get(), std::move(input));
  return apply_filter(filters->text, input, evaluate_arguments(filters->arguments));
}

Value Evaluator::make_macro(const Statement& node) {
  macros_.push_back({&node, scope_});
  return Value(
      Value::Data(std::make_shared<const Function>(Function{node.text, Value(), &macros_.back()})));
}

Value Evaluator::call_macro(const Macro& macro, const CallArguments& arguments) {
  const Statement& node = *macro.definition;
  const size_t parameters = node.names.size();
  const std::string what = node.text.empty() ? "caller" : absl::StrCat("the macro ", node.text);
  if (arguments.positional.size() > parameters) {
    throw TemplateError(absl::StrCat(what, " takes at most ", parameters, " arguments, not ",
                                     arguments.positional.size()));
  }
  const NewScope own(*this, macro.scope);
  std::vector<bool> is_given(parameters, false);
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    scope_->set(node.names[i], arguments.positional[i]);
    is_given[i] = true;
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(node.names, name);
    if (found != node.names.end()) {
      const auto at = static_cast<size_t>(found - node.names.begin());
      if (is_given[at])
        throw TemplateError(absl::StrCat(what, " has two arguments \"", name, "\""));
      is_given[at] = true;
    } else if (name != "caller") {
      throw TemplateError(absl::StrCat(what, " has no argument \"", name, "\""));
    }
    scope_->set(name, value);
  }
  for (size_t i = 0; i < parameters; ++i) {
    if (is_given[i]) continue;
    const size_t with_default = parameters - node.defaults.size();
    scope_->set(node.names[i], i < with_default ? Value::undefined(node.names[i])
                                                : evaluate(*node.defaults[i - with_default]));
  }
  return text(captured(node.body));
}

}  // namespace muster::trainer::chat
