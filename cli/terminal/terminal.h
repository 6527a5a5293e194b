// Capabilities of the terminal: colours (not on pipes or with NO_COLOR), its width, and short forms
// of figures.
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
// Returns the current columns of the terminal at `fd`; 80 when it is no terminal or has no size.
int terminal_width(int fd);

// Returns text of other programs on one line, with control characters escaped.
std::string shown(const std::string& text);
// Returns the columns of `text`: its characters, not its bytes.
size_t columns(std::string_view text);
// Cuts `text` to at most `columns_max` columns; a longer text ends with "…".
std::string shorten(std::string_view text, size_t columns_max);

// Colours `text` if `fd` takes colours.
std::string coloured(int fd, Colour colour, std::string_view text);

// Writes all of `text`. Returns false when the reader is gone or the disk is full.
bool write_text(int fd, std::string_view text);

// Prints a command's result to stdout and returns the exit code. A full disk is an error; a reader
// that has closed the pipe (`| head`) is not.
int print_result(std::string_view text);
// Returns the exit code for a failed write with that errno; 0: no failure.
int end_of_output(int error);

// Prints "muster: error: …" to stderr, with control characters escaped. Returns the matching exit
// code: 2 for errors that the user can correct.
int fail(const absl::Status& status);
void warn(std::string_view message);
// Prints "muster: …" to stderr.
void note(std::string_view message);

// Returns "59s", "3m 07s", "2h 05m" or "4d 03h"; "-" when negative or not finite.
std::string format_duration(double seconds);
// Returns three digits and a unit: "950", "12.3k", "4.40M".
std::string format_count(double value);

// Pads columns to their widest cell; the first row is the heading. Control characters are escaped.
std::string format_table(std::vector<std::vector<std::string>> rows);

}  // namespace muster::cli
