#include "coordinator/core/sweep/check_history.h"

#include <algorithm>

namespace muster::coordinator {

CheckHistory::CheckHistory(std::map<WorkerName, DeepChecks> stored) : checks_(std::move(stored)) {
  std::erase_if(checks_, [](const auto& history) { return history.second.empty(); });
  for (const auto& [name, checks] : checks_) by_age_.emplace(checks.back().unix_ns, name);
}

const DeepChecks& CheckHistory::of(const WorkerName& name) const {
  static const DeepChecks kNone;
  const auto known = checks_.find(name);
  return known == checks_.end() ? kNone : known->second;
}

int64_t CheckHistory::newest_unix_ns(const WorkerName& name) const {
  const DeepChecks& checks = of(name);
  return checks.empty() ? 0 : checks.back().unix_ns;
}

void CheckHistory::add(const WorkerName& name, DeepCheckRecord record) {
  DeepChecks& checks = checks_[name];
  if (!checks.empty()) by_age_.erase({checks.back().unix_ns, name});
  by_age_.emplace(record.unix_ns, name);
  checks.push_back(std::move(record));
  if (checks.size() > kDeepChecksKeptMax) checks.erase(checks.begin());
  changed_.insert(name);
  if (checks_.size() <= kHistoriesMax) return;
  const WorkerName oldest = by_age_.begin()->second;
  by_age_.erase(by_age_.begin());
  changed_.insert(oldest);
  checks_.erase(oldest);
}

std::vector<const Measurements*> CheckHistory::earlier(const WorkerName& name,
                                                       std::string_view kind) const {
  std::vector<const Measurements*> found;
  for (const DeepCheckRecord& record : of(name))
    if (record.passed && record.kind == kind) found.push_back(&record.measurements);
  return found;
}

std::map<WorkerName, DeepChecks> CheckHistory::take_changes() {
  std::map<WorkerName, DeepChecks> changes;
  for (const WorkerName& name : std::exchange(changed_, {})) changes.emplace(name, of(name));
  return changes;
}

const DeepCheckRecord* newest_passed(const DeepChecks& checks) {
  const auto found = std::find_if(checks.rbegin(), checks.rend(),
                                  [](const DeepCheckRecord& record) { return record.passed; });
  return found == checks.rend() ? nullptr : &*found;
}

}  // namespace muster::coordinator
