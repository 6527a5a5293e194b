// The newest results of deep checks of each node. Durable. Pure; called on one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/job/ids.h"
#include "coordinator/core/records/deep_check.h"

namespace muster::coordinator {

// Above the number of workers of any fleet; then the oldest histories are dropped.
constexpr size_t kHistoriesMax = 20'000;

// Oldest first, at most kDeepChecksKeptMax.
using DeepChecks = std::vector<DeepCheckRecord>;

class CheckHistory {
 public:
  CheckHistory() = default;
  explicit CheckHistory(std::map<WorkerName, DeepChecks> stored);

  const std::map<WorkerName, DeepChecks>& all() const { return checks_; }
  // Returns the node's results; empty: it was never checked.
  const DeepChecks& of(const WorkerName& name) const;
  // Returns the time of the node's newest result; 0: none.
  int64_t newest_unix_ns(const WorkerName& name) const;
  // Takes logarithmic time.
  void add(const WorkerName& name, DeepCheckRecord record);

  // Returns the measurements of the node's passed results of this kind.
  std::vector<const Measurements*> earlier(const WorkerName& name, std::string_view kind) const;

  // The histories to store since the last call; an empty one is to be deleted.
  std::map<WorkerName, DeepChecks> take_changes();

 private:
  std::map<WorkerName, DeepChecks> checks_;
  std::set<std::pair<int64_t, WorkerName>> by_age_;  // the newest result of each node
  std::set<WorkerName> changed_;
};

// Returns the newest passed result; null: there is none.
const DeepCheckRecord* newest_passed(const DeepChecks& checks);

}  // namespace muster::coordinator
