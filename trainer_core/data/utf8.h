// UTF-8 according to RFC 3629: validation and repair. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster::trainer {

struct Utf8Step {
  size_t bytes = 0;
  bool is_valid = false;
};

// Returns the character at the start of `text`. Requires: `text` is not empty. If it is ill-formed,
// returns the longest prefix that could begin a character: the Unicode Standard's "maximal
// subpart", which decoders replace by one U+FFFD (section 3.9, as WHATWG and Python do).
Utf8Step next_utf8(std::string_view text);

struct Utf8Report {
  uint64_t invalid_bytes = 0;
  size_t first_invalid = 0;  // valid only if invalid_bytes > 0
};

Utf8Report scan_utf8(std::string_view text);

// Returns `text` with U+FFFD in place of each ill-formed piece.
std::string repair_utf8(std::string_view text);

// Returns the largest end, at most `end`, that does not split a well-formed character of `text`.
// Requires: end <= text.size().
size_t utf8_boundary(std::string_view text, size_t end);

}  // namespace muster::trainer
