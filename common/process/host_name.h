// The name of this machine.
#pragma once

#include <string>

namespace muster {

// Returns the machine's name as valid UTF-8 without control characters: these and invalid bytes are
// written as \x1b and \xff, because the kernel takes any bytes for a name. "localhost" if it has
// none.
std::string host_name();

}  // namespace muster
