// The `gloo` transport: ranks are processes that communicate over TCP through the Gloo library.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// The options of a world over Gloo.
struct GlooOptions {
  int rank = 0;                            // this rank in the world
  int size = 1;                            // ranks of the world
  std::string rendezvous;                  // host:port of the rendezvous store
  std::string bind_address = "127.0.0.1";  // address of this host at which peers can reach it
  // Prefix of the keys, "<job>/<attempt>/", unique to this launch.
  std::string scope;
  // Maximum time until all ranks have joined; it must cover the slowest start of a rank.
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(120);
  std::chrono::milliseconds timeout = kRoundTimeout;  // limit of one round
};

// Joins the world and connects to every other rank. Returns DeadlineExceeded with the missing
// ranks, or Unavailable if the store or a peer cannot be reached. Requires that SIGPIPE is ignored.
absl::StatusOr<std::shared_ptr<Transport>> connect_gloo(const GlooOptions& options);

}  // namespace muster::trainer
