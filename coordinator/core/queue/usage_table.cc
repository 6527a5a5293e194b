#include "coordinator/core/queue/usage_table.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace muster::coordinator {
namespace {

// Less than a minute of one rank changes no order that a person notices.
constexpr double kNegligibleSeconds = 60;

double decayed(const UsageRecord& usage, Duration half_life, int64_t unix_ns) {
  const double age = std::max(0.0, static_cast<double>(unix_ns - usage.unix_ns));
  return usage.rank_seconds * std::exp2(-age / static_cast<double>(half_life.count()));
}

}  // namespace

void UsageTable::restore(const std::vector<UsageRecord>& records) {
  for (const UsageRecord& record : records) usages_.insert_or_assign(record.party, record);
}

void UsageTable::add(const Party& party, double rank_seconds, Duration half_life, int64_t unix_ns) {
  UsageRecord& usage = usages_[party];
  usage = {party, decayed(usage, half_life, unix_ns) + rank_seconds, unix_ns};
  changed_.insert(party);
}

double UsageTable::of(const Party& party, Duration half_life, int64_t unix_ns) const {
  const auto found = usages_.find(party);
  return found == usages_.end() ? 0 : decayed(found->second, half_life, unix_ns);
}

std::vector<UsageRecord> UsageTable::take_changes(Duration half_life, int64_t unix_ns) {
  std::vector<std::pair<double, Party>> by_usage;
  for (const auto& [party, usage] : usages_)
    by_usage.emplace_back(decayed(usage, half_life, unix_ns), party);
  std::ranges::sort(by_usage, std::greater());
  for (size_t i = 0; i < by_usage.size(); ++i) {
    const auto& [seconds, party] = by_usage[i];
    // A party that runs has just begun to.
    if (i < kPartiesMax && (seconds >= kNegligibleSeconds || changed_.contains(party))) continue;
    usages_.erase(party);
    changed_.insert(party);
  }
  std::vector<UsageRecord> records;
  for (const Party& party : std::exchange(changed_, {})) {
    const auto usage = usages_.find(party);
    records.push_back(usage == usages_.end() ? UsageRecord{party, 0, unix_ns} : usage->second);
  }
  return records;
}

}  // namespace muster::coordinator
