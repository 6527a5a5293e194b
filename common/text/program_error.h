// Finds the error that ended a program in the last lines of its output: a Python exception with its
// traceback, the message of std::terminate, a failed assertion. Pure functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace muster {

struct ProgramError {
  // One line: "ValueError: batch 7 is empty". If the line itself shows no cause, the first later
  // line of the message that does follows after "; ", for example NCCL's "Last error".
  std::string text;
  // The innermost line of the program's own files in the traceback: "job/train.py:31 step". Empty:
  // no traceback was printed.
  std::string place;
};

// Returns the last error in `lines`, oldest first; nullopt if no line reports an error. An error
// with more than 20 lines of output after it did not end the program and does not count.
std::optional<ProgramError> find_program_error(std::span<const std::string> lines);

// Returns the error as one line: "ValueError: batch 7 is empty (job/train.py:31 step)".
std::string to_string(const ProgramError& error);

// Returns whether the text states why a program ended, and is no other output of it: an exception,
// a fatal word, or a message of the kernel or of a shell. Warnings are not.
bool is_error_text(std::string_view text);

// Return the place in a text of to_string(), "job/train.py:31 step", and the type of the exception,
// "ValueError". The place is empty if the text has none.
std::string error_place(std::string_view text);
std::string error_type(std::string_view text);

// Returns the type of the exception and its place from a text of to_string():
// "ValueError at job/train.py:31 step". Empty if the text has no place, or for a type that other
// causes than the program's own code and data may have, such as RuntimeError.
std::string error_signature(std::string_view text);

// Returns whether the text reports that another rank or its connection was lost, or that a
// collective did not complete: a known consequence of another rank's fault (error_family.h).
bool reports_lost_peer(std::string_view text);

// Returns whether the text reports a failure of the network, of storage, of a device or of the
// node, which the next attempt may not have (error_family.h).
bool reports_environment(std::string_view text);

}  // namespace muster
