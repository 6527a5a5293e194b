// What the terminal can show: colours (NO_COLOR and pipes respected), its width, and short forms of figures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

namespace muster::cli {

enum class Colour { kRed, kYellow, kDim };

// True when `fd` is a terminal that understands escape sequences.
bool takes_escapes(int fd);
// The same, and NO_COLOR (https://no-color.org) is not set.
bool takes_colour(int fd);
// Columns of the terminal at `fd` as it is now; 80 when it is none or does not say.
int terminal_width(int fd);

// `text` of other programs on one line, with control characters escaped.
std::string shown(const std::string& text);
// Columns that `text` takes: its characters, not its bytes.
size_t columns(std::string_view text);
// `text` in at most `columns_max` columns: a longer one ends with "…".
std::string shorten(std::string_view text, size_t columns_max);

// `text`, coloured when `fd` takes colours.
std::string coloured(int fd, Colour colour, std::string_view text);

// Writes all of `text`; false when the reader is gone or the disk is full.
bool write_text(int fd, std::string_view text);

// A command's result on stdout; returns its exit code. A full disk is an error; a reader that has seen enough (`| head`) is none.
int print_result(std::string_view text);
// The same where writing has failed already, with that errno; 0: it has not.
int end_of_output(int error);

// "muster: error: …" on stderr, with control characters escaped. Returns the exit code that fits: 2 for what the user can set right.
int fail(const absl::Status& status);
void warn(std::string_view message);

// "59s", "3m 07s", "2h 05m", "4d 03h"; "-" when negative or not finite.
std::string format_duration(double seconds);
// Three digits and a unit: "950", "12.3k", "4.40M".
std::string format_count(double value);

// Columns padded to their widest cell; the first row is the heading. Control characters are escaped.
std::string format_table(std::vector<std::vector<std::string>> rows);

}  // namespace muster::cli
