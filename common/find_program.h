// Which file a command's first word means, as a shell would find it.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster {

// Absolute. A name with a slash is meant from `directory` (absolute); any other is looked for in the folders of `path`, a PATH.
// NotFound says where it was looked for, PermissionDenied which file may not be executed.
absl::StatusOr<std::string> find_program(const std::string& name, std::string_view path,
                                         const std::string& directory);

}  // namespace muster
