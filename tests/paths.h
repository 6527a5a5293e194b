// Where this tree and its programs lie. Only paths.cc is compiled with them, so that the compiler's cache serves the tests of every checkout.
#pragma once

#include <string>

namespace muster {

std::string source_dir();
std::string bin_dir();

}  // namespace muster
