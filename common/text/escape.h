// Makes text safe for people: escapes control characters that a terminal would interpret, and
// quotes words that people may paste into a shell.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

// kLines leaves \n and \t unescaped; kOneLine escapes them, too.
enum class Layout { kLines, kOneLine };

// Returns `text` with every control character written as \x1b: C0, DEL, and C1 both as UTF-8
// (U+0080 to U+009F) and as single bytes, which old terminals interpret. kOneLine escapes \n and
// \t, too. All other bytes, invalid UTF-8 included, stay unchanged.
std::string escape_controls(std::string_view text, Layout layout = Layout::kLines);

bool is_valid_utf8(std::string_view text);

// Returns `text` with each byte that belongs to no UTF-8 character written as \xff. Control
// characters stay.
std::string valid_utf8(std::string_view text);

// Returns `text` as one word of a POSIX shell, quoted only if it needs quotes.
std::string shell_quoted(std::string_view text);

// Returns `text` as one line of valid UTF-8 of at most `bytes_max` bytes. Invalid bytes become
// \xff; a cut is marked by "…". Requires bytes_max >= 3.
std::string printable(std::string_view text, size_t bytes_max);

}  // namespace muster
