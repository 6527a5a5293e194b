// The `gloo` transport: ranks are processes that communicate over TCP through the Gloo library.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/comm/transport.h"

namespace muster::trainer {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  std::string rendezvous;                  // host:port of the store
  std::string bind_address = "127.0.0.1";  // this host's address that the peers can reach
  std::string scope;                       // "<job>/<attempt>/": no other launch uses these keys
  // Time until every rank must have joined: as long as the slowest may take to start.
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(120);
  std::chrono::milliseconds timeout = kRoundTimeout;
};

// Joins the world and connects to each other rank. Errors: DeadlineExceeded names the missing
// ranks; Unavailable if the store or a peer cannot be reached. Requires that SIGPIPE is ignored.
absl::StatusOr<std::shared_ptr<Transport>> connect_gloo(const GlooOptions& options);

}  // namespace muster::trainer
