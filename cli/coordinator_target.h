// The addresses of the coordinators of which a command uses the one that leads, and the files for
// TLS and the token.
#pragma once

#include <string>

#include "daemon/client_trust.h"

namespace muster::cli {

struct CoordinatorTarget {
  std::string address;  // "host:port", or several separated by commas
  daemon::ClientTrust trust = {};
};

}  // namespace muster::cli
