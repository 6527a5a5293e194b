#include "trainer_core/chat/expression_parser.h"

#include <algorithm>
#include <charconv>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "trainer_core/chat/parser.h"

namespace muster::trainer::chat {
namespace {

using ExpressionKind = Expression::Kind;
using TokenKind = Token::Kind;

constexpr size_t kTokenBytesShown = 40;

std::string shown(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kData:
      return "text";
    default:
      return absl::StrCat(
          "\"", escape_controls(token.text.substr(0, kTokenBytesShown), Layout::kOneLine), "\"");
  }
}

}  // namespace

ExpressionParser::Nested::Nested(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kNestingMax) {
    parser_.fail(
        absl::StrCat("expressions and statements are nested deeper than ", kNestingMax, " levels"));
  }
}

void ExpressionParser::fail(const std::string& what) const { fail_at(current().line, what); }

void ExpressionParser::fail_at(int line, const std::string& what) {
  throw TemplateError(absl::StrCat("line ", line, ": ", what));
}

bool ExpressionParser::skip_operator(std::string_view text) {
  const bool found = is_operator(text);
  if (found) next();
  return found;
}

bool ExpressionParser::skip_name(std::string_view text) {
  const bool found = is_name(text);
  if (found) next();
  return found;
}

void ExpressionParser::expect_operator(std::string_view text) {
  if (!skip_operator(text))
    fail(absl::StrCat("expected \"", av(text), "\" instead of ", shown(current())));
}

std::string ExpressionParser::expect_name() {
  if (current().kind != TokenKind::kName)
    fail(absl::StrCat("expected a name instead of ", shown(current())));
  return next().text;
}

ExpressionPtr ExpressionParser::make(ExpressionKind kind) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = current().line;
  return node;
}

ExpressionPtr ExpressionParser::make_binary(const std::string& name, ExpressionPtr left,
                                            ExpressionPtr right) const {
  auto node = make(ExpressionKind::kBinary);
  node->line = left->line;
  node->text = name;
  node->parts.push_back(std::move(left));
  node->parts.push_back(std::move(right));
  return node;
}

bool ExpressionParser::ends_tuple(bool conditions) const {
  const TokenKind kind = current().kind;
  return kind == TokenKind::kVariableEnd || kind == TokenKind::kBlockEnd ||
         kind == TokenKind::kEnd || is_operator(")") || (!conditions && is_name("recursive"));
}

ExpressionPtr ExpressionParser::parse_tuple(bool conditions) {
  auto tuple = make(ExpressionKind::kTuple);
  bool has_comma = false;
  while (!ends_tuple(conditions)) {
    tuple->parts.push_back(conditions ? parse_condition() : parse_or());
    if (!skip_operator(",")) break;
    has_comma = true;
  }
  if (tuple->parts.empty())
    fail(absl::StrCat("expected an expression instead of ", shown(current())));
  if (!has_comma) return std::move(tuple->parts[0]);
  return tuple;
}

ExpressionPtr ExpressionParser::parse_condition() {
  const Nested nested(*this);
  auto node = parse_or();
  while (skip_name("if")) {
    auto condition = make(ExpressionKind::kCondition);
    condition->parts.push_back(std::move(node));
    condition->parts.push_back(parse_or());
    condition->parts.push_back(skip_name("else") ? parse_condition() : nullptr);
    node = std::move(condition);
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_or() {
  auto left = parse_and();
  while (skip_name("or")) left = make_binary("or", std::move(left), parse_and());
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  auto left = parse_not();
  while (skip_name("and")) left = make_binary("and", std::move(left), parse_not());
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Nested nested(*this);
  auto node = make(ExpressionKind::kUnary);
  node->text = next().text;
  node->parts.push_back(parse_not());
  return node;
}

ExpressionPtr ExpressionParser::parse_compare() {
  constexpr std::string_view kOperators[] = {"==", "!=", ">", ">=", "<", "<="};
  auto node = make(ExpressionKind::kCompare);
  node->parts.push_back(parse_sum());
  for (;;) {
    const bool is_compare = current().kind == TokenKind::kOperator &&
                            std::ranges::find(kOperators, current().text) != std::end(kOperators);
    if (is_compare) {
      node->names.push_back(next().text);
    } else if (skip_name("in")) {
      node->names.emplace_back("in");
    } else if (is_name("not")) {
      next();
      if (!skip_name("in")) fail(absl::StrCat("expected \"in\" instead of ", shown(current())));
      node->names.emplace_back("not in");
    } else {
      break;
    }
    node->parts.push_back(parse_sum());
  }
  if (node->names.empty()) return std::move(node->parts[0]);
  return node;
}

ExpressionPtr ExpressionParser::parse_sum() {
  auto left = parse_concat();
  while (is_operator("+") || is_operator("-")) {
    const std::string name = next().text;
    left = make_binary(name, std::move(left), parse_concat());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concat() {
  auto node = make(ExpressionKind::kConcat);
  node->parts.push_back(parse_product());
  while (skip_operator("~")) node->parts.push_back(parse_product());
  if (node->parts.size() == 1) return std::move(node->parts[0]);
  return node;
}

ExpressionPtr ExpressionParser::parse_product() {
  auto left = parse_power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    const std::string name = next().text;
    left = make_binary(name, std::move(left), parse_power());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_power() {
  auto left = parse_unary();
  while (skip_operator("**")) left = make_binary("**", std::move(left), parse_unary());
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  ExpressionPtr node;
  if (is_operator("-") || is_operator("+")) {
    const Nested nested(*this);
    node = make(ExpressionKind::kUnary);
    node->text = next().text;
    node->parts.push_back(parse_unary(/*with_filters=*/false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = current();
  switch (token.kind) {
    case TokenKind::kName: {
      auto node = make(ExpressionKind::kConstant);
      const std::string name = next().text;
      if (name == "true" || name == "True" || name == "false" || name == "False") {
        node->value = Value::boolean(name == "true" || name == "True");
      } else if (name == "none" || name == "None") {
        node->value = Value::none();
      } else {
        node->kind = ExpressionKind::kName;
        node->text = name;
      }
      return node;
    }
    case TokenKind::kString: {
      auto node = make(ExpressionKind::kConstant);
      std::string text;
      while (current().kind == TokenKind::kString) text += next().text;
      node->value = Value::text(std::move(text));
      return node;
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return parse_number();
    default:
      break;
  }
  if (is_operator("(")) {
    const Nested nested(*this);
    auto empty = make(ExpressionKind::kTuple);
    next();
    auto node = is_operator(")") ? std::move(empty) : parse_tuple();
    expect_operator(")");
    return node;
  }
  if (is_operator("[")) return parse_list();
  if (is_operator("{")) return parse_dict();
  fail(absl::StrCat("expected an expression instead of ", shown(token)));
}

ExpressionPtr ExpressionParser::parse_number() {
  auto node = make(ExpressionKind::kConstant);
  const Token token = next();
  if (token.kind == TokenKind::kFloat) {
    double value = 0;
    if (!absl::SimpleAtod(token.text, &value)) fail_at(token.line, token.text + " is no number");
    node->value = Value::real(value);
  } else {
    int64_t value = 0;
    const auto end = token.text.data() + token.text.size();
    if (std::from_chars(token.text.data(), end, value).ec != std::errc())
      fail_at(token.line, absl::StrCat("the integer ", token.text, " is too large"));
    node->value = Value::integer(value);
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_list() {
  const Nested nested(*this);
  auto node = make(ExpressionKind::kList);
  next();
  while (!is_operator("]")) {
    if (!node->parts.empty()) expect_operator(",");
    if (is_operator("]")) break;
    node->parts.push_back(parse_expression());
  }
  expect_operator("]");
  return node;
}

ExpressionPtr ExpressionParser::parse_dict() {
  const Nested nested(*this);
  auto node = make(ExpressionKind::kDict);
  next();
  while (!is_operator("}")) {
    if (!node->parts.empty()) expect_operator(",");
    if (is_operator("}")) break;
    node->parts.push_back(parse_expression());
    expect_operator(":");
    node->parts.push_back(parse_expression());
  }
  expect_operator("}");
  return node;
}

}  // namespace muster::trainer::chat
