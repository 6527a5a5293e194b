// Text for people's eyes: what a terminal would obey is made visible, and what they may paste into a shell is one word of it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

// Whether \n and \t may stay.
enum class Layout { kLines, kOneLine };

// `text` with every control character written as \x1b: C0, DEL, and C1 both as UTF-8 (U+0080 to U+009F) and as the single
// bytes that old terminals obey; \n and \t, too, in one line. Everything else, any other bad UTF-8 too, stays as it is.
std::string escape_controls(std::string_view text, Layout layout = Layout::kLines);

// One line of valid UTF-8 and at most `bytes_max` bytes (3 or more) of whatever `text` is: what would not be valid is written as \xff, and what
// was cut off as "…".
std::string printable(std::string_view text, size_t bytes_max);

// `text` as one word of a POSIX shell: as it is where that needs no quotes.
std::string shell_quoted(std::string_view text);

}  // namespace muster
