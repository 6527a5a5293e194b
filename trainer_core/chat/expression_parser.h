// Parses the expressions of a template.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "trainer_core/chat/lexer.h"
#include "trainer_core/chat/nodes.h"

namespace muster::trainer::chat {

// Parses expressions from a list of tokens. The methods are Jinja's rules of the same names, and
// throw TemplateError.
class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Counts the nesting of the object's scope; the constructor throws if it is too deep.
  class Nested {
   public:
    explicit Nested(ExpressionParser& parser);
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    ExpressionParser& parser_;
  };

  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] static void fail_at(int line, const std::string& what);
  const Token& current() const { return tokens_[at_]; }
  Token next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool is_operator(std::string_view text) const {
    return current().is(Token::Kind::kOperator, text);
  }
  bool is_name(std::string_view text) const { return current().is(Token::Kind::kName, text); }
  // Passes the token if it is this one.
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  std::string expect_name();

  ExpressionPtr parse_expression() { return parse_condition(); }
  // Parses expressions separated by commas; more than one are a tuple. With `conditions` false, as
  // in a for loop, "if" and "recursive" end an expression.
  ExpressionPtr parse_tuple(bool conditions = true);
  ExpressionPtr parse_condition();
  ExpressionPtr parse_unary(bool with_filters = true);
  // Parses ".a", "[i]" and "(…)" behind a value, and with `with_filters` "| f" and "is t".
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_filter(ExpressionPtr input, bool first_is_named = false);
  Arguments parse_arguments();

 private:
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_filters_and_tests(ExpressionPtr node);
  ExpressionPtr parse_test(ExpressionPtr node);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_subscript(ExpressionPtr node);
  ExpressionPtr parse_slice(ExpressionPtr node);
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_number();
  bool ends_tuple(bool conditions) const;
  ExpressionPtr make(Expression::Kind kind) const;
  ExpressionPtr make_binary(const std::string& name, ExpressionPtr left, ExpressionPtr right) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace muster::trainer::chat
