#include <algorithm>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/chat/characters.h"
#include "trainer_core/chat/evaluator.h"
#include "trainer_core/chat/limit_error.h"

namespace muster::trainer::chat {
namespace {

// The attributes of `loop`.
Value loop_attribute(const Loop& loop, const std::string& name) {
  const auto count = static_cast<int64_t>(loop.items->items.size());
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(count - index);
  if (name == "revindex0") return Value::integer(count - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == count);
  if (name == "length") return Value::integer(count);
  // Jinja counts recursive calls of a loop, and there are none.
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem" && index > 0) return loop.items->items[loop.index - 1];
  if (name == "nextitem" && index + 1 < count) return loop.items->items[loop.index + 1];
  return Value::undefined(absl::StrCat("loop.", name));
}

}  // namespace

Value Evaluator::evaluate(const Expression& node) {
  const int before = line_;
  line_ = node.line;
  go_deeper();
  Value value = evaluate_parts(node);
  // After an error the line is that of the expression; the evaluation has then ended.
  --depth_;
  line_ = before;
  return value;
}

Value Evaluator::evaluate_parts(const Expression& node) {
  using Kind = Expression::Kind;
  switch (node.kind) {
    case Kind::kConstant:
      return node.value;
    case Kind::kName:
      return look_up(node.text);
    case Kind::kList:
    case Kind::kTuple: {
      count_items(node.parts.size());
      std::vector<Value> items;
      for (const auto& part : node.parts) items.push_back(evaluate(*part));
      return Value::list(std::move(items), node.kind == Kind::kTuple);
    }
    case Kind::kDict: {
      Dict dict;
      for (size_t i = 0; i < node.parts.size(); i += 2) {
        Value key = evaluate(*node.parts[i]);
        if (key.as_list() != nullptr || key.as_dict() != nullptr)
          throw TemplateError(absl::StrCat("a ", av(key.type_name()), " cannot be a key"));
        Value value = evaluate(*node.parts[i + 1]);
        count_items(2);
        if (const Value* const held = find(dict, key)) {
          *const_cast<Value*>(held) = std::move(value);
        } else {
          dict.entries.emplace_back(std::move(key), std::move(value));
        }
      }
      return Value::dict(std::move(dict.entries));
    }
    case Kind::kAttribute:
      return attribute(evaluate(*node.parts[0]), node.text);
    case Kind::kItem: {
      const Value value = evaluate(*node.parts[0]);
      return item(value, evaluate(*node.parts[1]));
    }
    case Kind::kSlice:
      return evaluate_slice(node);
    case Kind::kCall: {
      const Value callee = evaluate(*node.parts[0]);
      return call(callee, evaluate_arguments(node.arguments));
    }
    case Kind::kFilter: {
      const Value input = evaluate(*node.parts[0]);
      return apply_filter(node.text, input, evaluate_arguments(node.arguments));
    }
    case Kind::kTest: {
      const Value input = evaluate(*node.parts[0]);
      return Value::boolean(apply_test(node.text, input, evaluate_arguments(node.arguments)));
    }
    case Kind::kUnary:
      return evaluate_unary(node);
    case Kind::kBinary:
      return evaluate_binary(node);
    case Kind::kCompare:
      return evaluate_compare(node);
    case Kind::kConcat: {
      std::string out;
      for (const auto& part : node.parts) {
        const std::string added = text_of(evaluate(*part));
        count_work(added.size());
        out += added;
      }
      return Value::text(std::move(out));
    }
    case Kind::kCondition: {
      if (evaluate(*node.parts[1]).is_true()) return evaluate(*node.parts[0]);
      return node.parts[2] != nullptr ? evaluate(*node.parts[2])
                                      : Value::undefined("the value of an inline if without else");
    }
  }
  return {};
}

Value Evaluator::look_up(const std::string& name) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    count_work(1);
    for (const auto& [candidate, value] : scope->variables) {
      if (candidate == name) return value;
    }
  }
  if (has_function(*this, name))
    return Value(Value::Data(std::make_shared<const Function>(Function{name, Value(), nullptr})));
  return Value::undefined(name);
}

Value Evaluator::evaluate_slice(const Expression& node) {
  const Value value = evaluate(*node.parts[0]);
  Value bounds[3] = {Value::none(), Value::none(), Value::none()};
  for (size_t i = 0; i < 3; ++i) {
    if (node.parts[i + 1] != nullptr) bounds[i] = evaluate(*node.parts[i + 1]);
  }
  return slice(*this, value, bounds[0], bounds[1], bounds[2]);
}

Value Evaluator::evaluate_unary(const Expression& node) {
  const Value value = evaluate(*node.parts[0]);
  if (node.text == "not") return Value::boolean(!value.is_true());
  require_defined(value);
  if (!value.is_number())
    throw TemplateError(absl::StrCat("a ", av(value.type_name()), " has no sign"));
  if (const double* const real = value.get<double>())
    return Value::real(node.text == "-" ? -*real : *real);
  return arithmetic(*this, node.text, Value::integer(0), value);
}

Value Evaluator::evaluate_binary(const Expression& node) {
  Value left = evaluate(*node.parts[0]);
  if (node.text == "and") return left.is_true() ? evaluate(*node.parts[1]) : left;
  if (node.text == "or") return left.is_true() ? left : evaluate(*node.parts[1]);
  const Value right = evaluate(*node.parts[1]);
  require_defined(left);
  require_defined(right);
  return arithmetic(*this, node.text, left, right);
}

Value Evaluator::evaluate_compare(const Expression& node) {
  Value left = evaluate(*node.parts[0]);
  for (size_t i = 0; i < node.names.size(); ++i) {
    Value right = evaluate(*node.parts[i + 1]);
    if (!compare(node.names[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

bool Evaluator::compare(const std::string& name, const Value& left, const Value& right) {
  if (name == "in") return contains(right, left);
  if (name == "not in") return !contains(right, left);
  if (name == "==") return are_equal(left, right);
  if (name == "!=") return !are_equal(left, right);
  require_defined(left);
  require_defined(right);
  if (name == "<") return is_less(left, right);
  if (name == ">") return is_less(right, left);
  // NaN is in no order with anything.
  return (name == "<=" ? is_less(left, right) : is_less(right, left)) || are_equal(left, right);
}

CallArguments Evaluator::evaluate_arguments(const Arguments& arguments) {
  CallArguments values;
  for (const auto& argument : arguments.positional)
    values.positional.push_back(evaluate(*argument));
  for (const auto& [name, argument] : arguments.named)
    values.named.emplace_back(name, evaluate(*argument));
  return values;
}

Value Evaluator::call(const Value& callee, const CallArguments& arguments) {
  require_defined(callee);
  const Function* const function = callee.as_function();
  if (function == nullptr)
    throw TemplateError(absl::StrCat("a ", av(callee.type_name()), " cannot be called"));
  if (function->macro != nullptr) return call_macro(*function->macro, arguments);
  if (!function->self.is_undefined()) return call_method(*this, *function, arguments);
  return call_function(*this, function->name, arguments);
}

Value Evaluator::attribute(const Value& value, const std::string& name) {
  require_defined(value);
  if (const Loop* const loop = value.as_loop(); loop != nullptr && !has_method(value, name))
    return loop_attribute(*loop, name);
  if (const Namespace* const space = value.as_namespace()) {
    for (const auto& [candidate, held] : space->attributes) {
      if (candidate == name) return held;
    }
  }
  if (has_method(value, name))
    return Value(Value::Data(std::make_shared<const Function>(Function{name, value, nullptr})));
  if (const Dict* const dict = value.as_dict()) {
    count_work(dict->entries.size());
    if (const Value* const found = find_key(*dict, name)) return *found;
  }
  return Value::undefined(name);
}

Value Evaluator::item(const Value& value, const Value& key) {
  require_defined(value);
  if (const Dict* const dict = value.as_dict()) {
    if (const Value* const found = find(*dict, key)) return *found;
  }
  const bool is_sequence = value.as_list() != nullptr || value.as_text() != nullptr;
  if (is_sequence && key.is_integer()) {
    const auto size = static_cast<int64_t>(length(value));
    int64_t at = key.as_integer();
    if (at < 0) at += size;
    if (at < 0 || at >= size) return Value::undefined(absl::StrCat("item ", key.as_integer()));
    if (const List* const list = value.as_list()) return list->items[static_cast<size_t>(at)];
    const std::string& characters = *value.as_text();
    count_work(characters.size());
    const size_t begin = offset_of(characters, static_cast<size_t>(at));
    return text(characters.substr(begin, offset_of(std::string_view(characters).substr(begin), 1)));
  }
  const std::string* const name = key.as_text();
  if (name == nullptr) return Value::undefined(absl::StrCat("item ", text_of(key)));
  if (value.as_dict() == nullptr || has_method(value, *name)) return attribute(value, *name);
  count_work(name->size());
  return Value::undefined(*name);
}

std::shared_ptr<const List> Evaluator::items_of(const Value& value) {
  if (const auto* const list = value.get<std::shared_ptr<const List>>()) return *list;
  List items;
  if (const Dict* const dict = value.as_dict()) {
    count_items(dict->entries.size());
    for (const auto& [key, held] : dict->entries) items.items.push_back(key);
  } else if (const std::string* const characters = value.as_text()) {
    count_items(3 * characters->size());  // each character is a value and a text
    for (const char32_t c : Characters(*characters)) {
      std::string one;
      append_character(c, one);
      items.items.push_back(Value::text(std::move(one)));
    }
  } else if (!value.is_undefined()) {
    throw TemplateError(absl::StrCat("a ", av(value.type_name()), " has no items"));
  }
  return std::make_shared<const List>(std::move(items));
}

size_t Evaluator::length(const Value& value) {
  if (const std::string* const characters = value.as_text()) {
    count_work(characters->size() / 8);
    return character_count(*characters);
  }
  if (const List* const list = value.as_list()) return list->items.size();
  if (const Dict* const dict = value.as_dict()) return dict->entries.size();
  if (const Loop* const loop = value.as_loop()) return loop->items->items.size();
  if (value.is_undefined()) return 0;
  throw TemplateError(absl::StrCat("a ", av(value.type_name()), " has no length"));
}

bool Evaluator::contains(const Value& haystack, const Value& needle) {
  if (const std::string* const characters = haystack.as_text()) {
    require_defined(needle);
    const std::string* const part = needle.as_text();
    if (part == nullptr)
      throw TemplateError(absl::StrCat("a ", av(needle.type_name()), " cannot be in a str"));
    // The standard library's search may take the product of both sizes.
    count_work(characters->size() + characters->size() * part->size() / 64);
    return characters->find(*part) != std::string::npos;
  }
  if (const Dict* const dict = haystack.as_dict()) {
    return find(*dict, needle) != nullptr;
  }
  const auto items = items_of(haystack);
  return std::ranges::any_of(items->items, [&](const Value& item) {
    count_work(1);
    return are_equal(item, needle);
  });
}

}  // namespace muster::trainer::chat
