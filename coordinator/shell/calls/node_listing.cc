#include "coordinator/shell/calls/node_listing.h"

#include <algorithm>
#include <utility>

#include "coordinator/shell/calls/muster_calls.h"

namespace muster::coordinator {
namespace {

constexpr Duration kListEvery = std::chrono::seconds(2);
constexpr Duration kListEveryMax = std::chrono::seconds(20);
constexpr int kListCostShare = 100;

}  // namespace

void NodeListing::get(Done done) {
  std::unique_lock lock(mutex_);
  const Duration every = std::clamp<Duration>(kListCostShare * cost_, kListEvery, kListEveryMax);
  if (nodes_ != nullptr && monotonic_now() - begun_ < every) {
    const auto nodes = nodes_;
    lock.unlock();
    return done(nodes, {});
  }
  waiting_.push_back(std::move(done));
  if (is_queried_) return;
  is_queried_ = true;
  lock.unlock();
  const absl::Status status = loop_.query([this](const Core* core, Instant now) {
    if (core == nullptr) return take(absl::UnavailableError("the coordinator is stopping"), {}, {});
    const Instant begun = monotonic_now();
    auto nodes = std::make_shared<const Nodes>(MusterCalls::all_workers(*core, now));
    take(std::move(nodes), begun, monotonic_now() - begun);
  });
  if (!status.ok()) take(status, {}, {});
}

void NodeListing::expire() {
  const std::lock_guard lock(mutex_);
  expired_at_ = monotonic_now();
  nodes_ = nullptr;
}

void NodeListing::take(const absl::StatusOr<std::shared_ptr<const Nodes>>& nodes, Instant begun,
                       Duration cost) {
  std::vector<Done> waiting;
  {
    const std::lock_guard lock(mutex_);
    is_queried_ = false;
    if (nodes.ok()) {
      nodes_ = begun < expired_at_ ? nullptr : *nodes;
      begun_ = begun;
      cost_ = cost;
    }
    waiting = std::exchange(waiting_, {});
  }
  for (const Done& done : waiting) done(nodes, std::exchange(cost, {}));
}

}  // namespace muster::coordinator
