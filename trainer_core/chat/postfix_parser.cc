// The rules of what follows a value: attributes, items, calls, filters and tests.
#include <absl/strings/str_cat.h>

#include "trainer_core/chat/expression_parser.h"
#include "trainer_core/chat/parser.h"

namespace muster::trainer::chat {

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  // Each step of a chain is one level deeper in the tree.
  for (int steps = 0;; ++steps) {
    if (steps > kNestingMax) fail("a chain of attributes, items and calls is too long");
    if (is_operator(".") || is_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (is_operator("(")) {
      auto call = make(Expression::Kind::kCall);
      call->parts.push_back(std::move(node));
      call->arguments = parse_arguments();
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr node) {
  if (skip_operator(".")) {
    auto attribute = make(Expression::Kind::kAttribute);
    if (current().kind == Token::Kind::kInteger) {
      attribute->kind = Expression::Kind::kItem;
      attribute->parts.push_back(std::move(node));
      attribute->parts.push_back(parse_number());
      return attribute;
    }
    attribute->text = expect_name();
    attribute->parts.push_back(std::move(node));
    return attribute;
  }
  const Nested nested(*this);
  next();
  return parse_slice(std::move(node));
}

// Parses the index or slice behind "[", and "]".
ExpressionPtr ExpressionParser::parse_slice(ExpressionPtr node) {
  auto item = make(Expression::Kind::kItem);
  item->parts.push_back(std::move(node));
  if (!is_operator(":")) item->parts.push_back(parse_expression());
  if (is_operator(":")) {
    item->kind = Expression::Kind::kSlice;
    if (item->parts.size() == 1) item->parts.push_back(nullptr);
    while (item->parts.size() < 4 && skip_operator(":")) {
      const bool is_empty = is_operator(":") || is_operator("]");
      item->parts.push_back(is_empty ? nullptr : parse_expression());
    }
    item->parts.resize(4);
  }
  expect_operator("]");
  return item;
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr node) {
  for (int steps = 0;; ++steps) {
    if (steps > kNestingMax) fail("a chain of filters and tests is too long");
    if (is_operator("|")) {
      node = parse_filter(std::move(node));
    } else if (is_name("is")) {
      node = parse_test(std::move(node));
    } else if (is_operator("(")) {
      // Calls behind filters apply to their result, as in Jinja.
      node = parse_postfix(std::move(node));
    } else {
      return node;
    }
  }
}

// Parses "| f | g", or with `first_is_named` "f | g".
ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr input, bool first_is_named) {
  while (first_is_named || skip_operator("|")) {
    first_is_named = false;
    auto filter = make(Expression::Kind::kFilter);
    filter->text = expect_name();
    filter->parts.push_back(std::move(input));
    if (is_operator("(")) filter->arguments = parse_arguments();
    input = std::move(filter);
  }
  return input;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr node) {
  auto test = make(Expression::Kind::kTest);
  next();
  const bool is_negated = skip_name("not");
  test->text = expect_name();
  test->parts.push_back(std::move(node));
  const Token& token = current();
  const bool is_value = token.kind == Token::Kind::kName || token.kind == Token::Kind::kString ||
                        token.kind == Token::Kind::kInteger || token.kind == Token::Kind::kFloat ||
                        is_operator("[") || is_operator("{");
  if (is_operator("(")) {
    test->arguments = parse_arguments();
  } else if (is_value && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) fail("tests cannot follow each other; use \"and\"");
    const Nested nested(*this);
    test->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  if (!is_negated) return test;
  auto negated = make(Expression::Kind::kUnary);
  negated->text = "not";
  negated->parts.push_back(std::move(test));
  return negated;
}

Arguments ExpressionParser::parse_arguments() {
  const Nested nested(*this);
  Arguments arguments;
  bool is_first = true;
  for (expect_operator("("); !is_operator(")"); is_first = false) {
    if (!is_first) expect_operator(",");
    if (is_operator(")")) break;
    if (is_operator("*") || is_operator("**")) fail("arguments with * and ** are not supported");
    auto value = parse_expression();
    if (value->kind == Expression::Kind::kName && skip_operator("=")) {
      arguments.named.emplace_back(value->text, parse_expression());
    } else if (!arguments.named.empty()) {
      fail("a positional argument follows a named one");
    } else {
      arguments.positional.push_back(std::move(value));
    }
  }
  expect_operator(")");
  return arguments;
}

}  // namespace muster::trainer::chat
