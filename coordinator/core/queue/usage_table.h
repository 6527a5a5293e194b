// The usage of users and teams. Pure; called on one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "common/time/time.h"
#include "coordinator/core/records/queue_policy.h"

namespace muster::coordinator {

class UsageTable {
 public:
  // The number of parties whose usage is stored; those with the least usage are dropped.
  static constexpr size_t kPartiesMax = 10'000;

  void restore(const std::vector<UsageRecord>& records);
  void add(const Party& party, double rank_seconds, Duration half_life, int64_t unix_ns);
  // Returns the usage in rank seconds.
  double of(const Party& party, Duration half_life, int64_t unix_ns) const;
  const std::map<Party, UsageRecord>& all() const { return usages_; }
  // Returns the records that have changed since the last call, and deletes negligible ones.
  std::vector<UsageRecord> take_changes(Duration half_life, int64_t unix_ns);

 private:
  std::map<Party, UsageRecord> usages_;
  std::set<Party> changed_;
};

}  // namespace muster::coordinator
