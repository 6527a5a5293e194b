#include "trainer_core/chat/parser.h"

#include <algorithm>
#include <initializer_list>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "trainer_core/chat/expression_parser.h"
#include "trainer_core/chat/lexer.h"

namespace muster::trainer::chat {
namespace {

using StatementKind = Statement::Kind;

class Parser : public ExpressionParser {
  using Names = std::initializer_list<const char*>;

 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Statements parse() { return parse_until({}, 1, ""); }

 private:
  static std::unique_ptr<Statement> make(StatementKind kind, int line) {
    auto node = std::make_unique<Statement>();
    node->kind = kind;
    node->line = line;
    return node;
  }

  bool is_one_of(Names names) const {
    return std::ranges::any_of(names, [&](const char* name) { return is_name(name); });
  }

  // Parses statements until a block tag with one of `ends`, whose name is then the current token.
  // `opened` and `line` are the block that needs the end.
  Statements parse_until(Names ends, int line, const std::string& opened) {
    const Nested nested(*this);
    Statements statements;
    for (;;) {
      switch (current().kind) {
        case Token::Kind::kData:
          statements.push_back(make(StatementKind::kData, current().line));
          statements.back()->text = next().text;
          break;
        case Token::Kind::kVariableBegin:
          statements.push_back(make(StatementKind::kOutput, next().line));
          statements.back()->condition = parse_tuple();
          if (current().kind != Token::Kind::kVariableEnd) unexpected("}}");
          next();
          break;
        case Token::Kind::kBlockBegin: {
          next();
          if (is_one_of(ends)) return statements;
          const std::string name = current().text;
          statements.push_back(parse_statement(ends, opened));
          break;
        }
        default:
          if (ends.size() == 0) return statements;
          fail_at(line, absl::StrCat("\"", opened, "\" is not closed by \"",
                                     absl::StrJoin(ends, "\" or \""), "\""));
      }
    }
  }

  [[noreturn]] void unexpected(const char* wanted) const {
    fail(absl::StrCat("expected \"", wanted, "\" instead of \"", current().text, "\""));
  }

  void end_block() {
    if (current().kind != Token::Kind::kBlockEnd) unexpected("%}");
    next();
  }

  // Parses the statements up to the tag `end`, and the tag.
  Statements parse_body(const char* end, int line, const std::string& opened) {
    end_block();
    Statements body = parse_until({end}, line, opened);
    next();
    end_block();
    return body;
  }

  std::unique_ptr<Statement> parse_statement(Names ends, const std::string& opened) {
    const int line = current().line;
    const std::string name = expect_name();
    if (name == "if") return parse_if(line);
    if (name == "for") return parse_for(line);
    if (name == "set") return parse_set(line);
    if (name == "macro") return parse_macro(line);
    if (name == "call") return parse_call_block(line);
    if (name == "with") return parse_with(line);
    if (name == "filter") {
      auto node = make(StatementKind::kFilter, line);
      node->condition = parse_filter(nullptr, /*first_is_named=*/true);
      node->body = parse_body("endfilter", line, name);
      return node;
    }
    if (name == "generation") {
      auto node = make(StatementKind::kGeneration, line);
      const int loops = std::exchange(loops_, 0);
      node->body = parse_body("endgeneration", line, name);
      loops_ = loops;
      return node;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail_at(line, absl::StrCat("\"", name, "\" is outside of a loop"));
      auto node = make(name == "break" ? StatementKind::kBreak : StatementKind::kContinue, line);
      end_block();
      return node;
    }
    if (name.starts_with("end") || name == "else" || name == "elif") {
      fail_at(line, ends.size() == 0
                        ? absl::StrCat("\"", name, "\" closes nothing")
                        : absl::StrCat("\"", name, "\" where \"", opened, "\" needs \"",
                                       absl::StrJoin(ends, "\" or \""), "\""));
    }
    fail_at(line, absl::StrCat("the statement \"", name,
                               "\" is not supported; supported are if, for, set, macro, call, "
                               "with, filter, generation, break, continue and raw"));
  }

  std::unique_ptr<Statement> parse_if(int line) {
    auto first = make(StatementKind::kIf, line);
    Statement* node = first.get();
    for (;;) {
      node->condition = parse_tuple_without_conditions();
      end_block();
      node->body = parse_until({"elif", "else", "endif"}, line, "if");
      if (!is_name("elif")) break;
      // Each "elif" is one level deeper in the tree.
      if (++branches_ > kBranchesMax) fail(absl::StrCat("more than ", kBranchesMax, " branches"));
      const int at = next().line;
      node->other.push_back(make(StatementKind::kIf, at));
      node = node->other.back().get();
    }
    if (skip_name("else")) {
      end_block();
      node->other = parse_until({"endif"}, line, "if");
    }
    next();
    end_block();
    return first;
  }

  ExpressionPtr parse_tuple_without_conditions() { return parse_tuple(/*conditions=*/false); }

  // Parses the names of a for or, `with_spaces`, of a set, which may be attributes of namespaces.
  void parse_names(Statement& node, bool with_spaces) {
    const bool in_parentheses = skip_operator("(");
    do {
      if (!node.names.empty() && current().kind != Token::Kind::kName) break;
      node.names.push_back(parse_target());
      if (!with_spaces || in_parentheses) continue;
      node.spaces.emplace_back();
      if (!skip_operator(".")) continue;
      node.spaces.back() = std::exchange(node.names.back(), "");
      node.names.back() = expect_name();
    } while (skip_operator(",") && (node.unpacks = true));
    if (in_parentheses) expect_operator(")");
  }

  std::string parse_target() {
    const std::string name = expect_name();
    constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
    if (std::ranges::find(kReserved, name) != std::end(kReserved))
      fail(absl::StrCat("cannot assign to ", name));
    return name;
  }

  std::unique_ptr<Statement> parse_for(int line) {
    auto node = make(StatementKind::kFor, line);
    parse_names(*node, /*with_spaces=*/false);
    if (!skip_name("in")) unexpected("in");
    node->condition = parse_tuple_without_conditions();
    if (skip_name("if")) node->filter = parse_expression();
    if (is_name("recursive")) fail("recursive loops are not supported");
    end_block();
    ++loops_;
    node->body = parse_until({"else", "endfor"}, line, "for");
    --loops_;
    if (skip_name("else")) {
      end_block();
      node->other = parse_until({"endfor"}, line, "for");
    }
    next();
    end_block();
    return node;
  }

  std::unique_ptr<Statement> parse_set(int line) {
    auto node = make(StatementKind::kSet, line);
    parse_names(*node, /*with_spaces=*/true);
    if (skip_operator("=")) {
      node->condition = parse_tuple();
      end_block();
      return node;
    }
    if (node->unpacks) unexpected("=");
    node->kind = StatementKind::kSetBlock;
    node->condition = parse_filter(nullptr);
    node->body = parse_body("endset", line, "set");
    return node;
  }

  void parse_parameters(Statement& node) {
    expect_operator("(");
    while (!is_operator(")")) {
      if (!node.names.empty()) expect_operator(",");
      node.names.push_back(parse_target());
      if (skip_operator("=")) {
        node.defaults.push_back(parse_expression());
      } else if (!node.defaults.empty()) {
        fail("a parameter without a default follows one with a default");
      }
    }
    expect_operator(")");
  }

  std::unique_ptr<Statement> parse_macro(int line) {
    auto node = make(StatementKind::kMacro, line);
    node->text = parse_target();
    parse_parameters(*node);
    const int loops = std::exchange(loops_, 0);
    node->body = parse_body("endmacro", line, "macro");
    loops_ = loops;
    return node;
  }

  std::unique_ptr<Statement> parse_call_block(int line) {
    auto node = make(StatementKind::kCallBlock, line);
    if (is_operator("(")) parse_parameters(*node);
    node->condition = parse_expression();
    if (node->condition->kind != Expression::Kind::kCall) fail_at(line, "\"call\" needs a call");
    const int loops = std::exchange(loops_, 0);
    node->body = parse_body("endcall", line, "call");
    loops_ = loops;
    return node;
  }

  std::unique_ptr<Statement> parse_with(int line) {
    auto node = make(StatementKind::kWith, line);
    while (current().kind != Token::Kind::kBlockEnd) {
      if (!node->names.empty()) expect_operator(",");
      node->names.push_back(parse_target());
      expect_operator("=");
      node->defaults.push_back(parse_expression());
    }
    node->body = parse_body("endwith", line, "with");
    return node;
  }

  static constexpr int kBranchesMax = 1000;

  int loops_ = 0;     // the loops around the current position
  int branches_ = 0;  // the "elif" tags so far
};

}  // namespace

Statements parse_template(std::string_view source) {
  if (source.size() > kTemplateBytesMax) {
    throw TemplateError(absl::StrCat("the template has ", source.size(), " bytes; at most ",
                                     kTemplateBytesMax, " are read"));
  }
  return Parser(tokenize_template(source)).parse();
}

}  // namespace muster::trainer::chat
