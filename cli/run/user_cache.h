// Files of commands in the user's cache folder (common/files/user_cache.h).
#pragma once

#include <string>

namespace muster::cli {

// Returns the path of the file `name` after creating its folder; "" if the user has no writable
// cache folder.
std::string user_cache_file(const std::string& name);

// Returns whether this user calls it for the first time with this name, in any process; always true
// without a cache folder.
bool is_first_time(const std::string& name);

}  // namespace muster::cli
