// Resolves a command's first word to a file as a shell would.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster {

// Returns the absolute path of program `name`. A name with a slash is relative to `directory`,
// which must be absolute; any other name is searched in the folders of `path` (a PATH). Returns
// NotFound with the searched folders, or PermissionDenied with the file that is not executable.
absl::StatusOr<std::string> find_program(const std::string& name, std::string_view path,
                                         const std::string& directory);

// Does the same for a `name` without a slash, in the folders of this process's PATH.
absl::StatusOr<std::string> find_program_in_path(const std::string& name);

}  // namespace muster
