// Declares the flags of ClientTrust, which are the same in every program that connects to a
// coordinator.
#pragma once

#include <CLI/CLI.hpp>

#include "daemon/client_trust.h"

namespace muster::daemon {

// `environment`: whether MUSTER_TLS_CA, MUSTER_TLS_CERT, MUSTER_TLS_KEY and MUSTER_TOKEN_FILE
// replace unset flags. False for a worker: its ranks inherit most of its environment, so a worker
// takes flags only (docs/trust.md).
void add_trust_options(CLI::App& command, ClientTrust& trust, bool environment);

}  // namespace muster::daemon
