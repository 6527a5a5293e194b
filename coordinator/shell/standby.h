// The HTTP port of a coordinator that does not lead: /healthz, /readyz and /metrics, which name the
// leader. Clients and workers find the leader because only that one listens for gRPC.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <absl/status/statusor.h>

#include "coordinator/shell/etcd/leader_lease.h"
#include "coordinator/shell/server.h"

namespace muster::coordinator {

class Standby {
 public:
  // Listens on options.http. `leader` returns the present leader if it is known; it is called on
  // the server's thread until the destruction of this object. Errors are those of Server::start().
  static absl::StatusOr<std::unique_ptr<Standby>> start(
      const ServerOptions& options, std::function<std::optional<LeaderRecord>()> leader);
  // Stops listening, so that the leader's pages can take the port.
  virtual ~Standby() = default;

  virtual int http_port() const = 0;
};

}  // namespace muster::coordinator
