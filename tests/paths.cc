#include "tests/paths.h"

namespace muster {

std::string source_dir() { return MUSTER_SOURCE_DIR; }
std::string bin_dir() { return MUSTER_BIN_DIR; }

}  // namespace muster
