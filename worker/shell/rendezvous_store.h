// The rendezvous store's content: keys, values, who waits for them. No sockets.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "worker/core/rank.h"
#include "worker/shell/rendezvous_server.h"

namespace muster::worker {

// What error messages and logs show of a key.
constexpr size_t kShownKeyBytesMax = 128;

class RendezvousStore {
 public:
  // Called once: with the value, or with why it will not come.
  using Waiter = std::function<void(absl::StatusOr<std::string>)>;
  using WaiterId = uint64_t;

  explicit RendezvousStore(const RendezvousLimits& limits) : limits_(limits) {}

  // InvalidArgument for a key without "<job>/<attempt>/", FailedPrecondition for a scope that was dropped,
  // ResourceExhausted when the store is full. Wakes who waits for the key.
  absl::Status set(std::string_view key, std::string_view value);

  // Calls `waiter` at once when the key is there or can never be, and returns 0; otherwise when that is so,
  // and returns an id for cancel().
  WaiterId get(const std::string& key, Waiter waiter);
  void cancel(WaiterId id);

  void drop_scope(const LaunchKey& launch);
  void forget_scope(const LaunchKey& launch);

  size_t key_count() const { return values_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  absl::Status check_scope(std::string_view key) const;

  RendezvousLimits limits_;
  std::map<std::string, std::string, std::less<>> values_;
  size_t bytes_ = 0;
  struct Waiting {
    std::string key;
    Waiter waiter;
  };
  std::map<WaiterId, Waiting> waiting_;
  std::multimap<std::string, WaiterId, std::less<>> waiting_by_key_;
  WaiterId next_id_ = 1;
  std::set<LaunchKey> dropped_;
};

}  // namespace muster::worker
