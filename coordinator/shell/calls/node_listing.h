// The list of all nodes, which the requests of many viewers share. It is made at most every two
// seconds, and takes about a hundredth of the loop's time. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <absl/status/statusor.h>

#include "coordinator/shell/loop/core_loop.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

class NodeListing {
 public:
  using Nodes = std::vector<v1::WorkerInfo>;  // by name
  // Receives the list, or an error. `cost`: the loop's time that was spent for this call. Called
  // once, on the loop's thread or within get().
  using Done =
      std::function<void(const absl::StatusOr<std::shared_ptr<const Nodes>>& nodes, Duration cost)>;

  // Requires that `loop` outlives the listing, and the listing the loop's queries.
  explicit NodeListing(CoreLoop& loop) : loop_(loop) {}

  void get(Done done);
  // Makes the list again for the next request.
  void expire();

 private:
  void take(const absl::StatusOr<std::shared_ptr<const Nodes>>& nodes, Instant begun,
            Duration cost);

  CoreLoop& loop_;
  std::mutex mutex_;
  std::shared_ptr<const Nodes> nodes_;  // null: there is none, or it has expired
  Instant begun_{};                     // when the list was made
  Instant expired_at_{};
  Duration cost_{};
  bool is_queried_ = false;
  std::vector<Done> waiting_;
};

}  // namespace muster::coordinator
