// Small files that people have written, whole.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster {

// `what` is how errors call it, with the path. InvalidArgument: it is longer than `bytes_max`; else what file_status() makes of the failed call.
// Blocks as long as what `path` names does; a caller that wants a plain file asks before.
absl::StatusOr<std::string> read_file_up_to(size_t bytes_max, const std::string& path,
                                            std::string_view what);

// The same, where anything but a plain file is InvalidArgument.
absl::StatusOr<std::string> read_plain_file_up_to(size_t bytes_max, const std::string& path,
                                                  std::string_view what);

}  // namespace muster
