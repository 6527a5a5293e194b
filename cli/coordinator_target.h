// Which coordinator a command talks to, and how the two trust each other.
#pragma once

#include <string>

#include "daemon/client_trust.h"

namespace muster::cli {

struct CoordinatorTarget {
  std::string address;
  daemon::ClientTrust trust = {};
};

}  // namespace muster::cli
