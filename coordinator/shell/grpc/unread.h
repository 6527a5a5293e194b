// Finds connections whose received bytes gRPC has not read yet. A worker whose messages have
// arrived is not silent, even if this process is too busy to read them.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace muster::coordinator {

// The descriptors of accepted connections by the address of the peer. The descriptors belong to
// gRPC. A lookup therefore compares the peer of the descriptor, which another connection or file
// may have since. Thread-safe.
class OpenConnections {
 public:
  // Records a connection that is handed to gRPC. Does nothing if the connection has no peer: the
  // peer may have closed it already.
  void add(int descriptor);
  // Returns whether the connection of `peer` has bytes that were not read. `peer`: as returned by
  // grpc::ServerContextBase::peer(). Returns false if the connection is not known.
  bool has_unread(const std::string& peer) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, int> descriptors_;
  std::vector<std::string> peers_;  // by descriptor; bounds the map by the number of descriptors
};

}  // namespace muster::coordinator
