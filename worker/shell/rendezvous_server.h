// Serves the rendezvous store (common/rendezvous_wire.h) over TCP: ranks write where they can be reached and
// wait for the others'. It exists before any rank does. Runs on the event loop's thread.
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
  size_t bytes_max = size_t{256} << 20;  // of keys and values together
};

class RendezvousServer {
 public:
  // Listens on `endpoint` (port 0 picks a free one). AlreadyExists when the port is in use, naming it.
  static absl::StatusOr<std::unique_ptr<RendezvousServer>> start(
      boost::asio::io_context& context, const daemon::Endpoint& endpoint,
      const RendezvousLimits& limits = {});
  // Closes every connection. The loop must not run meanwhile, or the call be made from it.
  virtual ~RendezvousServer() = default;

  virtual int port() const = 0;

  // The attempt has ended: forgets its keys and refuses new ones, so that a rank which does not know yet meets
  // nobody; who waits is answered at once.
  virtual void drop_scope(const LaunchKey& launch) = 0;
  // Takes keys of this launch (again): another coordinator's launch may have had these numbers.
  virtual void forget_scope(const LaunchKey& launch) = 0;

  virtual size_t key_count() const = 0;
};

}  // namespace muster::worker
