// The network addresses of this machine.
#pragma once

#include <string>
#include <vector>

namespace muster {

// Returns the addresses of this network namespace at which other machines may reach it, at most
// kNodeAddressesMax, sorted: without loopback and link-local addresses. Empty if they cannot be
// read.
std::vector<std::string> node_addresses();

}  // namespace muster
