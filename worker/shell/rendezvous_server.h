// Serves the rendezvous store (common/rendezvous_wire.h) over TCP: ranks publish their addresses
// and wait for those of others. Starts before any rank. Runs on the event loop's thread.
#pragma once

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>
#include <boost/asio/io_context.hpp>

#include "daemon/endpoint.h"
#include "worker/core/rank.h"

namespace muster::worker {

struct RendezvousLimits {
  size_t connections_max = 8'192;        // ranks of the largest job on one store
  size_t keys_max = 1 << 20;             // a full mesh of a thousand ranks
  size_t bytes_max = size_t{256} << 20;  // keys and values together
};

class RendezvousServer {
 public:
  // Listens on `endpoint` (port 0 picks a free one). Returns AlreadyExists with the port if it is
  // in use.
  static absl::StatusOr<std::unique_ptr<RendezvousServer>> start(
      boost::asio::io_context& context, const daemon::Endpoint& endpoint,
      const RendezvousLimits& limits = {});
  // Closes every connection. Requires that the loop does not run meanwhile, or that the loop's
  // thread calls it.
  virtual ~RendezvousServer() = default;

  virtual int port() const = 0;

  // Deletes the keys of an ended attempt, refuses new ones, and answers waiting requests with an
  // error, so that late ranks of the attempt cannot meet.
  virtual void drop_scope(const LaunchKey& launch) = 0;
  // Accepts keys of this launch (again): a launch of another coordinator may have had the same
  // numbers.
  virtual void forget_scope(const LaunchKey& launch) = 0;

  virtual size_t key_count() const = 0;
};

}  // namespace muster::worker
