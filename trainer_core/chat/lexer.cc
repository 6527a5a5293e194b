#include "trainer_core/chat/lexer.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "trainer_core/chat/characters.h"
#include "trainer_core/chat/value.h"

namespace muster::trainer::chat {
namespace {

using Kind = Token::Kind;

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(c) || is_decimal(c); }
bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Replaces "\r\n" and "\r" by "\n", and removes one line break at the end.
std::string with_plain_ends(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = next_tag();
      if (tag == std::string::npos) {
        add(Kind::kData, source_.substr(at_));
        at_ = source_.size();
        break;
      }
      begin_tag(tag);
    }
    tokens_.push_back({Kind::kEnd, "", line_});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, int line) const {
    throw TemplateError(absl::StrCat("line ", line, ": ", what));
  }

  size_t next_tag() const {
    for (size_t i = source_.find('{', at_); i != std::string::npos; i = source_.find('{', i + 1)) {
      if (i + 1 < source_.size() &&
          (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#'))
        return i;
    }
    return std::string::npos;
  }

  // Adds a token for `text`, which ends at the line that line_ then has.
  void add(Kind kind, std::string text) {
    const int line = line_;
    line_ += static_cast<int>(std::ranges::count(text, '\n'));
    if (kind == Kind::kData && text.empty()) return;
    tokens_.push_back({kind, std::move(text), line});
  }

  // Moves behind `bytes` of the source.
  void pass(size_t bytes) {
    for (const size_t end = at_ + bytes; at_ < end; ++at_) {
      if (source_[at_] == '\n') ++line_;
    }
  }

  // Adds the text before the tag at `tag` without the white space that the tag removes, and passes
  // the text and the "{%", "{{" or "{#" with its sign.
  void begin_tag(size_t tag) {
    std::string_view data = std::string_view(source_).substr(at_, tag - at_);
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    const bool has_sign = sign == '-' || sign == '+';
    if (sign == '-') {
      data = strip(data, {}, false, true);
    } else if (kind != '{' && sign != '+') {
      const size_t line = data.rfind('\n') + 1;  // 0: the line began before the data
      const bool is_blank = strip(data.substr(line), {}, true, true).empty();
      if (is_blank && (line > 0 || starts_line_)) data = data.substr(0, line);
    }
    const int begins = line_;
    if (!data.empty()) tokens_.push_back({Kind::kData, std::string(data), line_});
    pass(tag - at_ + (has_sign ? 3 : 2));
    if (kind == '#') {
      pass_comment(begins);
    } else if (kind == '{') {
      tokens_.push_back({Kind::kVariableBegin, "{{", line_});
      read_tag(Kind::kVariableEnd, "}}");
    } else if (const auto body = raw_body()) {
      pass_raw(*body);
    } else {
      tokens_.push_back({Kind::kBlockBegin, "{%", line_});
      read_tag(Kind::kBlockEnd, "%}");
    }
    starts_line_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  // Returns the bytes of the tag's end at the current position: its white space is removed, too;
  // nullopt if this is no end. `closing` is "}}", "%}" or "#}".
  std::optional<size_t> end_bytes(std::string_view closing) const {
    const std::string_view rest = std::string_view(source_).substr(at_);
    if (rest.starts_with('-') && rest.substr(1).starts_with(closing)) {
      size_t end = 1 + closing.size();
      while (end < rest.size()) {
        const std::string_view after = rest.substr(end);
        if (!is_space(*Characters(after).begin())) break;
        end += offset_of(after, 1);
      }
      return end;
    }
    const bool is_variable = closing == "}}";
    if (!is_variable && rest.starts_with('+') && rest.substr(1).starts_with(closing))
      return 1 + closing.size();
    if (!rest.starts_with(closing)) return std::nullopt;
    const bool trims = !is_variable && rest.substr(closing.size()).starts_with('\n');
    return closing.size() + (trims ? 1 : 0);
  }

  void pass_comment(int begins) {
    for (; at_ < source_.size(); pass(1)) {
      if (const auto bytes = end_bytes("#}")) {
        pass(*bytes);
        return;
      }
    }
    fail("a comment is not closed by \"#}\"", begins);
  }

  // Returns the position behind "raw %}" if the tag at the current position is one.
  std::optional<size_t> raw_body() const {
    size_t at = at_;
    while (at < source_.size() && is_ascii_space(source_[at])) ++at;
    if (std::string_view(source_).substr(at, 3) != "raw") return std::nullopt;
    at += 3;
    while (at < source_.size() && is_ascii_space(source_[at])) ++at;
    const std::string_view rest = std::string_view(source_).substr(at);
    if (rest.starts_with("%}")) return at + 2;
    if (!rest.starts_with("-%}")) return std::nullopt;
    at += 3;
    while (at < source_.size() && is_ascii_space(source_[at])) ++at;
    return at;
  }

  void pass_raw(size_t body) {
    const int begins = line_;
    pass(body - at_);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      size_t at = tag + 2;
      const char sign = at < source_.size() ? source_[at] : ' ';
      if (sign == '-' || sign == '+') ++at;
      while (at < source_.size() && is_ascii_space(source_[at])) ++at;
      if (std::string_view(source_).substr(at, 6) != "endraw") continue;
      at += 6;
      while (at < source_.size() && is_ascii_space(source_[at])) ++at;
      const size_t from = at_;
      std::string_view data = std::string_view(source_).substr(from, tag - from);
      if (sign == '-') {
        data = strip(data, {}, false, true);
      } else if (sign != '+') {
        const size_t line = data.rfind('\n') + 1;
        const bool is_blank = strip(data.substr(line), {}, true, true).empty();
        if (is_blank && line > 0) data = data.substr(0, line);
      }
      const std::string text(data);
      const int line = line_;
      pass(at - at_);
      const auto bytes = end_bytes("%}");
      if (!bytes) fail("\"endraw\" is not followed by \"%}\"", line_);
      pass(*bytes);
      if (!text.empty()) tokens_.push_back({Kind::kData, text, line});
      return;
    }
    fail("\"raw\" is not closed by \"endraw\"", begins);
  }

  void read_tag(Kind end_kind, std::string_view closing) {
    const int begins = line_;
    std::string open;  // the brackets that are open; within them "}}" is no end
    while (at_ < source_.size()) {
      if (open.empty()) {
        if (const auto bytes = end_bytes(closing)) {
          tokens_.push_back({end_kind, std::string(closing), line_});
          pass(*bytes);
          return;
        }
      }
      const char c = source_[at_];
      if (is_ascii_space(c)) {
        pass(1);
      } else if (is_name_start(c)) {
        size_t end = at_;
        while (end < source_.size() && is_name_part(source_[end])) ++end;
        take(Kind::kName, end);
      } else if (is_decimal(c)) {
        read_number();
      } else if (c == '\'' || c == '"') {
        read_string(c);
      } else {
        read_operator(open);
      }
    }
    fail(absl::StrCat("a tag is not closed by \"", av(closing), "\""), begins);
  }

  void take(Kind kind, size_t end) {
    tokens_.push_back({kind, source_.substr(at_, end - at_), line_});
    pass(end - at_);
  }

  void read_number() {
    size_t end = digits_from(at_);
    bool is_float = false;
    if (end + 1 < source_.size() && source_[end] == '.' && is_decimal(source_[end + 1])) {
      is_float = true;
      end = digits_from(end + 1);
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t power = end + 1;
      if (power < source_.size() && (source_[power] == '+' || source_[power] == '-')) ++power;
      if (power < source_.size() && is_decimal(source_[power])) {
        is_float = true;
        end = digits_from(power);
      }
    }
    const std::string text = source_.substr(at_, end - at_);
    if (!is_float && text.size() > 1 && text[0] == '0' &&
        text.find_first_not_of("0_") != std::string::npos)
      fail(absl::StrCat("the integer ", text, " begins with 0"), line_);
    take(is_float ? Kind::kFloat : Kind::kInteger, end);
    std::erase(tokens_.back().text, '_');
  }

  size_t digits_from(size_t at) const {
    while (at < source_.size() &&
           (is_decimal(source_[at]) ||
            (source_[at] == '_' && at + 1 < source_.size() && is_decimal(source_[at + 1]))))
      ++at;
    return at;
  }

  void read_string(char quote) {
    const int begins = line_;
    std::string value;
    for (pass(1); at_ < source_.size() && source_[at_] != quote;) {
      if (source_[at_] == '\\' && at_ + 1 < source_.size()) {
        pass(1);
        read_escape(value);
      } else {
        value += source_[at_];
        pass(1);
      }
    }
    if (at_ >= source_.size()) fail("a string is not closed", begins);
    pass(1);
    tokens_.push_back({Kind::kString, std::move(value), begins});
  }

  // Reads the part of an escape sequence after the backslash, as Python.
  void read_escape(std::string& value) {
    constexpr std::string_view kFrom = "abfnrtv\\'\"";
    constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
    const char c = source_[at_];
    const size_t simple = kFrom.find(c);
    if (c == '\n') {
      pass(1);  // a continued line
    } else if (simple != std::string_view::npos) {
      value += kTo[simple];
      pass(1);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      read_code(c == 'x' ? 2 : c == 'u' ? 4 : 8, value);
    } else if (c >= '0' && c <= '7') {
      char32_t code = 0;
      for (int i = 0; i < 3 && source_[at_] >= '0' && source_[at_] <= '7'; ++i, pass(1))
        code = code * 8 + static_cast<char32_t>(source_[at_] - '0');
      append_character(code, value);
    } else {
      value += '\\';
    }
  }

  void read_code(size_t digits, std::string& value) {
    const int line = line_;
    pass(1);
    char32_t code = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = at_ < source_.size() ? source_[at_] : ' ';
      const char letter = static_cast<char>(c | 0x20);
      if (!is_decimal(c) && (letter < 'a' || letter > 'f'))
        fail(absl::StrCat("an escape sequence needs ", digits, " hexadecimal digits"), line);
      code = code * 16 + static_cast<char32_t>(is_decimal(c) ? c - '0' : letter - 'a' + 10);
      pass(1);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail("an escape sequence is no character", line);
    append_character(code, value);
  }

  void read_operator(std::string& open) {
    constexpr std::string_view kPairs[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kSingles = "+-/*%~[](){}><=.:|,;";
    const std::string_view rest = std::string_view(source_).substr(at_);
    for (const std::string_view pair : kPairs) {
      if (rest.starts_with(pair)) return take(Kind::kOperator, at_ + pair.size());
    }
    const char c = rest[0];
    if (kSingles.find(c) == std::string_view::npos) {
      fail(absl::StrCat(
               "unexpected character ",
               escape_controls(std::string(rest.substr(0, offset_of(rest, 1))), Layout::kOneLine)),
           line_);
    }
    if (c == '(' || c == '[' || c == '{') open += c;
    if (c == ')' || c == ']' || c == '}') {
      const char opened = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (!open.ends_with(opened))
        fail(absl::StrCat("unexpected \"", std::string(1, c), "\""), line_);
      open.pop_back();
    }
    take(Kind::kOperator, at_ + 1);
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool starts_line_ = true;  // the position is at the start of a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source) {
  return Lexer(with_plain_ends(source)).run();
}

}  // namespace muster::trainer::chat
