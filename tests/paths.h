// Paths of this source tree and its programs. Only paths.cc is compiled with them, so that the
// compiler cache serves the tests of every checkout.
#pragma once

#include <string>

namespace muster {

std::string source_dir();
std::string bin_dir();

}  // namespace muster
