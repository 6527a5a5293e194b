// Explains why the kernel does not execute a program that exists. Its own answers mislead: "No such
// file or directory" for a script whose interpreter is missing, "Exec format error" for a script
// without an interpreter line.
#pragma once

#include <string>

#include <absl/status/status.h>

namespace muster::worker {

// Returns PermissionDenied if the first line of the script `program` ends in a carriage return, as
// a file with Windows' line ends has: no interpreter understands it. Ok for every other file.
absl::Status check_interpreter_line(const std::string& program);

// Returns the status of a failed execve(program) with this errno. NotFound: the program does not
// exist; PermissionDenied: it exists and will never be executed as it is, with the interpreter or
// the property that prevents it; another code: the system may execute it later. Reads the program's
// first bytes.
absl::Status exec_problem(int error, const std::string& program);

}  // namespace muster::worker
