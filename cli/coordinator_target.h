// The address of the coordinator to which a command connects, and the files for TLS and the token.
#pragma once

#include <string>

#include "daemon/client_trust.h"

namespace muster::cli {

struct CoordinatorTarget {
  std::string address;
  daemon::ClientTrust trust = {};
};

}  // namespace muster::cli
