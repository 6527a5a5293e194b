#include "trainer_core/chat/evaluator.h"

#include <algorithm>
#include <ranges>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/chat/characters.h"
#include "trainer_core/chat/limit_error.h"

namespace muster::trainer::chat {
namespace {

// The units of work for an item of a list: its bytes.
constexpr size_t kItemUnits = sizeof(Value);

}  // namespace

class Evaluator::Deeper {
 public:
  Deeper(Evaluator& evaluator, int line) : evaluator_(evaluator) {
    evaluator_.line_ = line;
    evaluator_.go_deeper();
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
  rendered_.work = work_;
  return std::move(rendered_);
}

void Evaluator::go_deeper() {
  if (++depth_ > kDepthMax) {
    throw LimitError(
        absl::StrCat("calls and expressions are nested deeper than ", kDepthMax, " levels"));
  }
  count_work(1);
}

void Evaluator::count_work(size_t units) {
  if (__builtin_add_overflow(work_, units, &work_) || work_ > options_.work_max) {
    throw LimitError(absl::StrCat("the template takes more than ", options_.work_max,
                                  " units of work; it has a loop without a reasonable end"));
  }
}

void Evaluator::count_items(size_t items) {
  count_work(items > options_.work_max ? items : items * kItemUnits);
}

std::string Evaluator::text_of(const Value& value) {
  if (const auto* const undefined = value.get<Undefined>();
      undefined != nullptr && undefined->name != nullptr &&
      std::ranges::find(options_.required, *undefined->name) != options_.required.end())
    require_defined(value);
  count_work(value.as_text() != nullptr ? value.cost() / 8 : value.cost());
  return to_text(value);
}

bool Evaluator::are_equal(const Value& a, const Value& b) {
  const size_t cost = std::min(a.cost(), b.cost());
  count_work(a.as_text() != nullptr ? cost / 16 : cost);
  return equal(a, b);
}

bool Evaluator::is_less(const Value& a, const Value& b) {
  const size_t cost = std::min(a.cost(), b.cost());
  count_work(a.as_text() != nullptr ? cost / 16 : cost * static_cast<size_t>(1 + a.depth()));
  return less(a, b);
}

const Value* Evaluator::find(const Dict& dict, const Value& key) {
  const std::string* const text = key.as_text();
  count_work(dict.entries.size() * (text == nullptr ? 1 : 1 + text->size() / 16));
  return find_key(dict, key);
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
      put(text_of(value));
      break;
    }
    case Statement::Kind::kIf:
      return execute_if(node);
    case Statement::Kind::kFor:
      return execute_for(node);
    case Statement::Kind::kSet:
      assign(node, evaluate(*node.condition));
      break;
    case Statement::Kind::kSetBlock: {
      Value value = text(captured(node.body));
      assign(node, filtered(node.condition.get(), std::move(value)));
      break;
    }
    case Statement::Kind::kMacro:
      scope_->set(node.text, make_macro(node));
      break;
    case Statement::Kind::kCallBlock: {
      const Value callee = evaluate(*node.condition->parts[0]);
      CallArguments arguments = evaluate_arguments(node.condition->arguments);
      arguments.named.emplace_back("caller", make_macro(node));
      put(text_of(call(callee, arguments)));
      break;
    }
    case Statement::Kind::kFilter: {
      Value value = text(captured(node.body));
      put(text_of(filtered(node.condition.get(), std::move(value))));
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
      if (!evaluate(*node.filter).is_true()) continue;
      count_items(1);
      kept.push_back(value);
    }
    items = std::make_shared<const List>(List{std::move(kept), false, items->depth, items->cost});
  }
  for (size_t i = 0; i < items->items.size(); ++i) {
    const NewScope own(*this);
    scope_->set("loop", Value(Value::Data(std::make_shared<const Loop>(Loop{items, i}))));
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
    assign_one(node, 0, value);
    return;
  }
  const auto items = items_of(value);
  if (items->items.size() != node.names.size()) {
    throw TemplateError(absl::StrCat("cannot assign ", items->items.size(), " values to ",
                                     node.names.size(), " names"));
  }
  for (size_t i = 0; i < node.names.size(); ++i) assign_one(node, i, items->items[i]);
}

void Evaluator::assign_one(const Statement& node, size_t i, const Value& value) {
  const std::string& name = node.names[i];
  if (node.spaces.empty() || node.spaces[i].empty()) return scope_->set(name, value);
  const std::string& space = node.spaces[i];
  Namespace* const target = look_up(space).as_namespace();
  if (target == nullptr)
    throw TemplateError(absl::StrCat("\"", space, "\" is no namespace, so \"", space, ".", name,
                                     "\" cannot be set"));
  for (auto& [candidate, held] : target->attributes) {
    if (candidate == name) {
      held = value;
      return;
    }
  }
  target->attributes.emplace_back(name, value);
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
  std::vector<const Expression*> chain;  // the last filter first
  for (; filters != nullptr; filters = filters->parts[0].get()) chain.push_back(filters);
  for (const Expression* const filter : std::views::reverse(chain))
    input = apply_filter(filter->text, input, evaluate_arguments(filter->arguments));
  return input;
}

Value Evaluator::make_macro(const Statement& node) {
  count_items(16);  // also for the scope, which lives on
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
