// Terminal output: colours, widths, the output of a command's result and errors, and short forms of
// figures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

namespace muster::cli {

enum class Colour { kRed, kYellow, kDim };

// Returns whether `fd` is a terminal that understands escape sequences.
bool takes_escapes(int fd);
// Returns whether takes_escapes(fd), and NO_COLOR (https://no-color.org) is not set.
bool takes_colour(int fd);
// Returns the current number of columns of the terminal at `fd`; 80 if `fd` is no terminal or has
// no size.
int terminal_width(int fd);

// Returns `text`, which another program may have written, as one line with control characters
// escaped.
std::string shown(const std::string& text);
// Returns the number of columns of `text`, which is the number of its characters, not bytes.
size_t columns(std::string_view text);
// Returns `text` with at most `columns_max` columns; a longer text is cut and ends with "…".
std::string shorten(std::string_view text, size_t columns_max);

// Returns `text` with escape sequences for the colour if takes_colour(fd).
std::string coloured(int fd, Colour colour, std::string_view text);

// Writes all of `text`. Returns false if the reader is gone or the disk is full.
bool write_text(int fd, std::string_view text);

// Prints a command's result to stdout and returns the command's exit code. A full disk is an error;
// a reader that has closed the pipe (`| head`) is not.
int print_result(std::string_view text);
// Returns the exit code after a write that failed with this errno; 0 if `error` is 0.
int end_of_output(int error);

// Prints "muster: error: …" to stderr, with control characters escaped. Returns the matching exit
// code: 2 for errors that the user can correct.
int fail(const absl::Status& status);
// Prints "muster: warning: …" to stderr.
void warn(std::string_view message);
// Prints "muster: …" to stderr.
void note(std::string_view message);

// Returns "59s", "3m 07s", "2h 05m" or "4d 03h"; "-" if `seconds` is negative or not finite.
std::string format_duration(double seconds);
// Returns three digits and a unit: "950", "12.3k", "4.40M".
std::string format_count(double value);

// Returns the rows as lines, with columns padded to their widest cell; the first row is the
// heading. Escapes control characters.
std::string format_table(std::vector<std::vector<std::string>> rows);

}  // namespace muster::cli
