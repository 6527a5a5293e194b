// Reads small files written by people.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster {

// Returns the content of `path`; `what` describes the file in errors. Returns InvalidArgument if
// the file is longer than `bytes_max`, else the status that file_status() makes of the failed call.
// Blocks as long as opening and reading `path` does (a FIFO may block forever); use
// read_plain_file_up_to() to require a plain file.
absl::StatusOr<std::string> read_file_up_to(size_t bytes_max, const std::string& path,
                                            std::string_view what);

// Like read_file_up_to(), but returns InvalidArgument for anything other than a plain file.
absl::StatusOr<std::string> read_plain_file_up_to(size_t bytes_max, const std::string& path,
                                                  std::string_view what);

}  // namespace muster
