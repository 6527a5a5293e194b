#include "common/job/node_addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <set>

#include <absl/cleanup/cleanup.h>

#include "common/job/stalled_link.h"

namespace muster {

std::vector<std::string> node_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  absl::Cleanup free_addresses = [first] { freeifaddrs(first); };
  std::set<std::string> names;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const void* address = nullptr;
    if (entry->ifa_addr->sa_family == AF_INET) {
      address = &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&v6)) continue;
      address = &v6;
    }
    std::array<char, INET6_ADDRSTRLEN> name{};
    if (address != nullptr &&
        inet_ntop(entry->ifa_addr->sa_family, address, name.data(), name.size()) != nullptr)
      names.insert(name.data());
    if (names.size() >= kNodeAddressesMax) break;
  }
  return {names.begin(), names.end()};
}

}  // namespace muster
