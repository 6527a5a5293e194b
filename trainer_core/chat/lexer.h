// Splits a template into tokens, as Jinja 3.1 does with trim_blocks and lstrip_blocks, which are
// the settings of Hugging Face's chat templates:
//
//   - a line break directly after a block tag or comment is removed;
//   - blanks between the start of a line and a block tag or comment are removed;
//   - "{%-" and "-%}" remove all white space before and after the tag; "{%+" and "+%}" remove none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster::trainer::chat {

struct Token {
  enum class Kind {
    kData,           // text outside of tags
    kVariableBegin,  // "{{"
    kVariableEnd,
    kBlockBegin,  // "{%"
    kBlockEnd,
    kName,
    kString,  // `text` is the value
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };

  Kind kind = Kind::kEnd;
  std::string text;
  int line = 1;

  bool is(Kind wanted, std::string_view value) const { return kind == wanted && text == value; }
};

// Returns the tokens of a template, the last of which is kEnd. Throws TemplateError with the line
// for an unclosed tag, comment or string, and for an unexpected character.
std::vector<Token> tokenize_template(std::string_view source);

}  // namespace muster::trainer::chat
