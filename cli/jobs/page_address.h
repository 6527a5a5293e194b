// The address of the coordinator's page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace muster::cli {

// Returns "http://127.0.0.1:7071/#/jobs/7". `authority`: the host and port of --http. `job`: 0 for
// the fleet.
std::string page_address(std::string_view authority, bool has_tls, uint64_t job);

}  // namespace muster::cli
