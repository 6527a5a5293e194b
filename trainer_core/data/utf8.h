// Validation and repair of UTF-8 (RFC 3629). Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster::trainer {

// A character, or an ill-formed piece, at the start of a text.
struct Utf8Step {
  size_t bytes = 0;
  bool is_valid = false;
};

// Returns the first character of `text`. If it is ill-formed, returns the longest prefix that could
// begin a character: the "maximal subpart" of the Unicode Standard (section 3.9), which decoders
// such as Python's replace by one U+FFFD. Requires that `text` is not empty.
Utf8Step next_utf8(std::string_view text);

// The ill-formed bytes of a text.
struct Utf8Report {
  uint64_t invalid_bytes = 0;
  size_t first_invalid = 0;  // offset in the text; valid only if invalid_bytes > 0
};

// Counts the ill-formed bytes of `text`.
Utf8Report scan_utf8(std::string_view text);

// Returns `text` with U+FFFD in place of each ill-formed piece.
std::string repair_utf8(std::string_view text);

// Returns the largest offset that is at most `end` and does not split a well-formed character of
// `text`. Requires end <= text.size().
size_t utf8_boundary(std::string_view text, size_t end);

}  // namespace muster::trainer
