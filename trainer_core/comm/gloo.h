// The `gloo` transport: ranks are processes that talk over TCP through the Gloo library.
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
  std::string scope;                       // "<job>/<attempt>/": keys of another launch meet nobody
  // Until every rank has come: as long as the slowest may take to start.
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(120);
  // Of one round: longer than the longest a rank may keep the others waiting (a checkpoint).
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

// Meets the world's other ranks and connects to each of them. DeadlineExceeded names the ranks that
// did not come; Unavailable when the store or a peer cannot be reached. Needs SIGPIPE ignored.
absl::StatusOr<std::shared_ptr<Transport>> connect_gloo(const GlooOptions& options);

}  // namespace muster::trainer
