// Files of commands in the user's cache folder (common/user_cache.h).
#pragma once

#include <string>

namespace muster::cli {

// Returns the path of the file `name`, whose folder exists then. Empty if the user has no folder
// that can be written.
std::string user_cache_file(const std::string& name);

// True in the first call for this name by this user, and always without a folder.
bool is_first_time(const std::string& name);

}  // namespace muster::cli
