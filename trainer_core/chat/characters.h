// Functions of Python's str on UTF-8 texts. A position is a number of characters (code points).
// Texts are well-formed UTF-8. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::trainer::chat {

// The characters of a text, for range-based loops.
class Characters {
 public:
  explicit Characters(std::string_view text) : text_(text) {}

  class Iterator {
   public:
    explicit Iterator(const char* at) : at_(at) {}
    char32_t operator*() const;
    Iterator& operator++();
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    const char* at_;
  };
  Iterator begin() const { return Iterator(text_.data()); }
  Iterator end() const { return Iterator(text_.data() + text_.size()); }

 private:
  std::string_view text_;
};

void append_character(char32_t character, std::string& out);
// Return the properties of Python's str.isspace() and str.isprintable().
bool is_space(char32_t character);
bool is_printable(char32_t character);
bool is_letter(char32_t character);  // str.isalpha()
bool is_digit(char32_t character);   // str.isdigit(): decimal digits and superscripts

size_t character_count(std::string_view text);
// Returns the byte offset of the character at `position`, or text.size() if there are fewer.
size_t offset_of(std::string_view text, size_t position);

// Each returns the result of the method of the same name. `set` is the set of characters to strip;
// without it, white space.
std::string_view strip(std::string_view text, std::optional<std::string_view> set, bool left,
                       bool right);
std::vector<std::string_view> split_spaces(std::string_view text, int64_t splits_max);
std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    int64_t splits_max, bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t count);
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);

}  // namespace muster::trainer::chat
