// The coordinator that a command connects to, and the credentials for both sides.
#pragma once

#include <string>

#include "daemon/client_trust.h"

namespace muster::cli {

struct CoordinatorTarget {
  std::string address;
  daemon::ClientTrust trust = {};
};

}  // namespace muster::cli
