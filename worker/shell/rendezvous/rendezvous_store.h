// The content of the rendezvous store: keys, values and waiting requests. rendezvous_server.h has
// the sockets.
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
#include "worker/shell/rendezvous/rendezvous_server.h"

namespace muster::worker {

// Maximum bytes of a key that error messages and logs show.
constexpr size_t kShownKeyBytesMax = 128;

// A bounded key-value map, in which a reader waits for a missing key. Not thread-safe.
class RendezvousStore {
 public:
  // Called once, with the key's value, or with the reason why the key will never exist.
  using Waiter = std::function<void(absl::StatusOr<std::string>)>;
  using WaiterId = uint64_t;

  explicit RendezvousStore(const RendezvousLimits& limits) : limits_(limits) {}

  // Stores the value and calls the key's waiters. Returns InvalidArgument for a key that does not
  // begin with "<job>/<attempt>/", FailedPrecondition if that scope was dropped, and
  // ResourceExhausted if the store is full.
  absl::Status set(std::string_view key, std::string_view value);

  // Calls `waiter` at once and returns 0 if the key exists or can never exist. Otherwise calls
  // `waiter` later and returns an id for cancel().
  WaiterId get(const std::string& key, Waiter waiter);
  // Removes the waiter, which is then never called.
  void cancel(WaiterId id);

  // See RendezvousServer; the same holds for forget_scope().
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
