// The folder of the small files that processes of this user share: measurements, tokenized text
// shards, and a record of the notes that have been shown. The files can be deleted safely.
#pragma once

#include <string>

namespace muster {

// Returns $XDG_CACHE_HOME/muster, or ~/.cache/muster, whether it exists or not; empty if neither
// variable has an absolute path. Source: XDG base directory specification.
std::string user_cache_folder();

}  // namespace muster
