// Serves the rendezvous store (common/job/rendezvous_wire.h) over TCP: ranks publish their
// addresses in it and wait for the addresses of other ranks. The worker starts the server before
// any rank. The server runs on the event loop's thread.
#pragma once

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>
#include <boost/asio/io_context.hpp>

#include "daemon/endpoint.h"
#include "worker/core/rank.h"

namespace muster::worker {

// Bounds on the store's clients and content.
struct RendezvousLimits {
  size_t connections_max = 8'192;        // enough for all ranks of the largest job
  size_t keys_max = 1 << 20;             // enough for a key per pair of a thousand ranks
  size_t bytes_max = size_t{256} << 20;  // keys and values together
};

// A listening rendezvous store.
class RendezvousServer {
 public:
  // Listens on `endpoint`; port 0 selects a free port. Returns AlreadyExists, with the port, if the
  // port is in use.
  static absl::StatusOr<std::unique_ptr<RendezvousServer>> start(
      boost::asio::io_context& context, const daemon::Endpoint& endpoint,
      const RendezvousLimits& limits = {});
  // Closes every connection. Requires that the event loop does not run meanwhile, or that its
  // thread calls the destructor.
  virtual ~RendezvousServer() = default;

  // Returns the port on which the server listens.
  virtual int port() const = 0;

  // Deletes the keys of an ended attempt, refuses new keys of that attempt, and answers its waiting
  // requests with an error, so that late ranks of the attempt cannot connect to each other.
  virtual void drop_scope(const LaunchKey& launch) = 0;
  // Accepts keys of this launch again, because an earlier, dropped launch of another coordinator
  // may have had the same numbers.
  virtual void forget_scope(const LaunchKey& launch) = 0;

  // Returns the number of stored keys.
  virtual size_t key_count() const = 0;
};

}  // namespace muster::worker
