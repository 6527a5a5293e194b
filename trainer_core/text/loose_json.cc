#include "trainer_core/text/loose_json.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include <absl/strings/match.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"

namespace muster::trainer {
namespace {

constexpr std::string_view kJsonBlanks = " \t\r\n";
// Values that are no numbers of JSON: those of JSON, of Python's json and repr(), of C's printf()
// and of JavaScript.
constexpr std::string_view kValueWords[] = {"true", "false", "null", "undefined", "none"};
constexpr std::string_view kNumberWords[] = {"nan", "infinity", "inf"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A number by JSON's grammar, of any length.
bool is_json_number(std::string_view text) {
  size_t at = 0;
  const auto digits = [&] {
    const size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return at > begin;
  };
  if (text.starts_with('-')) ++at;
  const size_t first = at;
  if (!digits()) return false;
  if (text[first] == '0' && at > first + 1) return false;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (!digits()) return false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (!digits()) return false;
  }
  return at == text.size();
}

bool is_word(absl::string_view text) {
  const auto is_text = [&](std::string_view word) {
    return absl::EqualsIgnoreCase(text, av(word));
  };
  if (std::ranges::any_of(kValueWords, is_text)) return true;
  if (!absl::ConsumePrefix(&text, "-")) absl::ConsumePrefix(&text, "+");
  return std::ranges::any_of(kNumberWords, is_text);
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool scan(LooseObject& object) {
    if (!take('{')) return false;
    if (take('}')) return at_end();
    do {
      std::string_view name;
      std::string_view value;
      if (!string(name) || !take(':') || !this->value(value)) return false;
      object.members.emplace_back(name, value);
    } while (take(','));
    return take('}') && at_end();
  }

 private:
  void skip_blanks() { at_ = std::min(text_.find_first_not_of(kJsonBlanks, at_), text_.size()); }
  bool at_end() {
    skip_blanks();
    return at_ == text_.size();
  }
  bool take(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool string(std::string_view& raw) {
    skip_blanks();
    const size_t begin = at_;
    if (!take('"')) return false;
    for (;;) {
      at_ = text_.find_first_of("\"\\", at_);
      if (at_ == std::string_view::npos) {
        at_ = text_.size();
        return false;
      }
      if (text_[at_] == '"') break;
      at_ += 2;
      if (at_ > text_.size()) return false;
    }
    ++at_;
    raw = text_.substr(begin, at_ - begin);
    return true;
  }

  bool word() {
    skip_blanks();
    const size_t end = std::min(text_.find_first_of(",]} \t\r\n", at_), text_.size());
    const std::string_view text = text_.substr(at_, end - at_);
    at_ = end;
    return is_json_number(text) || is_word(av(text));
  }

  // A value with everything in it; `open` has the brackets that are not closed yet.
  bool value(std::string_view& raw) {
    skip_blanks();
    const size_t begin = at_;
    std::string open;
    bool after_value = false;
    do {
      skip_blanks();
      if (at_ >= text_.size()) return false;
      if (!after_value) {
        if (!begin_value(open, after_value)) return false;
      } else if (text_[at_] == open.back()) {
        ++at_;
        open.pop_back();
      } else {
        if (!take(',') || !name_in(open)) return false;
        after_value = false;
      }
    } while (!open.empty() || !after_value);
    raw = text_.substr(begin, at_ - begin);
    return true;
  }

  // Takes a scalar, or the bracket that opens a container, with its first name.
  bool begin_value(std::string& open, bool& after_value) {
    std::string_view ignored;
    switch (text_[at_]) {
      case '"':
        after_value = true;
        return string(ignored);
      case '{':
      case '[': {
        const char close = text_[at_] == '{' ? '}' : ']';
        ++at_;
        if (take(close)) {
          after_value = true;
          return true;
        }
        open += close;
        return name_in(open);
      }
      default:
        after_value = true;
        return word();
    }
  }

  // In an object, takes a member's name and its colon.
  bool name_in(const std::string& open) {
    std::string_view ignored;
    return open.back() != '}' || (string(ignored) && take(':'));
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

bool parse_loosely(std::string_view text, LooseObject& object) {
  object.members.clear();
  return Scanner(text).scan(object);
}

}  // namespace muster::trainer
