#include "coordinator/core/fleet/exclusions.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "common/time/doubled.h"
#include "coordinator/core/recovery/drain.h"

namespace muster::coordinator {
namespace {

bool is_within(int64_t unix_ns, int64_t now_unix_ns, Duration time) {
  return now_unix_ns - unix_ns < time.count();
}

// Returns the time of the exclusion number `times`: 10 min, 20 min, 40 min, …, at most a day.
Duration exclusion_time(int32_t times) {
  return doubled(kExclusionFirst, times - 1, kExclusionMax);
}

}  // namespace

NodeBook::NodeBook(std::vector<NodeRecord> stored) {
  for (NodeRecord& record : stored) {
    record.until.reset();
    if (record.drain_unix_ns != 0) drains_.insert(record.worker);
    records_.insert_or_assign(record.worker, std::move(record));
  }
}

void NodeBook::set_time(Instant now, int64_t unix_ns) {
  now_ = now;
  unix_ns_ = unix_ns;
  if (unix_ns == 0) return;  // not known yet
  if (!std::exchange(planned_, true)) {
    for (auto& [name, node] : records_) {
      if (node.excluded && node.until_unix_ns != 0 && !node.until)
        node.until = now + Duration(node.until_unix_ns - unix_ns);
      plan(node);
    }
  }
  while (!changes_.empty() && changes_.begin()->first <= now) {
    NodeRecord& node = records_.at(changes_.begin()->second);
    if (!node.excluded && exclusion_end(node) <= unix_ns) {
      forget(WorkerName(node.worker));
      continue;
    }
    if (node.excluded) {
      node.excluded = false;
      node.check_due = true;
      // Ranks that are placed there from now on would be ordered to leave at once, again and again.
      if (node.drain_unix_ns <= unix_ns) {
        node.drain_unix_ns = 0;
        drains_.erase(node.worker);
      }
      changed_.insert(node.worker);
    }
    plan(node);
  }
}

std::optional<Instant> NodeBook::next_change() const {
  return changes_.empty() ? std::nullopt : std::optional(changes_.begin()->first);
}

// Returns the end of the newest exclusion, or the present time if the exclusion has not ended.
int64_t NodeBook::left_out_until(const NodeRecord& node) const {
  return std::max(node.since_unix_ns, std::min(node.until_unix_ns, unix_ns_));
}

// Returns the wall-clock time at which the newest information about a sound node expires.
int64_t NodeBook::exclusion_end(const NodeRecord& node) const {
  const int64_t excluded = node.times > 0 ? left_out_until(node) + kExclusionMemory.count() : 0;
  const int64_t fault = node.fault.empty() ? 0 : node.fault_unix_ns + kFaultsWindow.count();
  const int64_t drained =
      node.drain_unix_ns == 0 ? 0 : node.drain_unix_ns + kExclusionMemory.count();
  return std::max({excluded, fault, drained, node.checked_unix_ns + kCheckRemembered.count()});
}

void NodeBook::unplan(const WorkerName& name) {
  const auto known = change_of_.find(name);
  if (known == change_of_.end()) return;
  changes_.erase({known->second, name});
  change_of_.erase(known);
}

// Schedules the next change of the record. Called after each change of it.
void NodeBook::plan(const NodeRecord& node) {
  // If the wall clock jumps, the change must not be due again immediately.
  constexpr Duration kSoonest = std::chrono::seconds(1);
  unplan(node.worker);
  const bool sound = !node.excluded && !node.check_due;
  if (sound) {
    unsound_.erase(node.worker);
  } else {
    unsound_.insert(node.worker);
  }
  std::optional<Instant> change = node.excluded ? node.until : std::nullopt;
  if (sound) change = now_ + std::max<Duration>(kSoonest, Duration(exclusion_end(node) - unix_ns_));
  if (!change || unix_ns_ == 0) return;
  changes_.emplace(*change, node.worker);
  change_of_[node.worker] = *change;
}

void NodeBook::forget(const WorkerName& name) {
  unplan(name);
  unsound_.erase(name);
  drains_.erase(name);
  changed_.erase(name);
  forgotten_.push_back(name);
  records_.erase(name);
}

const NodeRecord* NodeBook::find(const WorkerName& name) const {
  const auto found = records_.find(name);
  return found == records_.end() ? nullptr : &found->second;
}

bool NodeBook::is_sound(const WorkerName& name) const {
  const NodeRecord* known = find(name);
  return known == nullptr || (!known->excluded && !known->check_due);
}

bool NodeBook::is_excluded(const WorkerName& name) const {
  const NodeRecord* known = find(name);
  return known != nullptr && known->excluded;
}

bool NodeBook::awaits_check(const WorkerName& name) const {
  const NodeRecord* known = find(name);
  return known != nullptr && !known->excluded && known->check_due;
}

NodeRecord& NodeBook::record(const WorkerName& name) {
  const auto [it, added] = records_.try_emplace(name);
  it->second.worker = name;
  changed_.insert(name);
  if (added) forget_old();
  return records_.at(name);
}

bool NodeBook::exclude(const WorkerName& name, Suspicion suspicion, std::string reason,
                       std::optional<Duration> time) {
  const bool by_person = suspicion == Suspicion::kPerson;
  const bool until_admitted = rule_of(suspicion).until_admitted;
  const NodeRecord* known = find(name);
  // Only a user changes an exclusion without an end.
  if (known != nullptr && known->excluded && !by_person &&
      rule_of(known->suspicion).until_admitted && (!until_admitted || known->until_unix_ns == 0))
    return false;
  if (known != nullptr && known->excluded && !until_admitted) {
    // A second suspicion does not extend the exclusion, and one that requires no check must not
    // replace one that does.
    if (!rule_of(suspicion).requires_check) return false;
    NodeRecord& same = record(name);
    same.suspicion = suspicion;
    same.reason = std::move(reason);
    plan(same);
    return true;
  }
  NodeRecord& node = record(name);
  // An exclusion by hand with an end does not shorten that of a planned drain.
  if (node.excluded && node.for_drain && node.drain_unix_ns != 0 && time) {
    if (node.until) {
      node.until = std::max(*node.until, now_ + *time);
      node.until_unix_ns = std::max(node.until_unix_ns, unix_ns_ + time->count());
      plan(node);
    }
    return true;
  }
  const bool again = node.times > 0 && is_within(left_out_until(node), unix_ns_, kExclusionMemory);
  node.times = again ? node.times + 1 : 1;
  if (!until_admitted) time = exclusion_time(node.times);
  // A planned drain stays, and the exclusion lasts until then if it is near.
  if (const Duration left(node.drain_unix_ns - unix_ns_);
      time && node.drain_unix_ns != 0 && left <= kDrainAhead)
    time = std::max(*time, left);
  node.excluded = true;
  node.check_due = true;
  node.suspicion = suspicion;
  node.for_drain = false;
  node.reason = std::move(reason);
  node.since_unix_ns = unix_ns_;
  node.until.reset();
  node.until_unix_ns = 0;
  if (time) {
    node.until = now_ + *time;
    node.until_unix_ns = unix_ns_ + time->count();
  }
  plan(node);
  return true;
}

void NodeBook::plan_drain(const WorkerName& name, int64_t unix_ns, std::string reason) {
  NodeRecord& node = record(name);
  node.drain_unix_ns = unix_ns;
  node.drain_reason = std::move(reason);
  drains_.insert(name);
  if (node.excluded && node.for_drain && Duration(unix_ns - unix_ns_) > kDrainAhead) {
    node.excluded = node.for_drain = false;
    node.until.reset();
    node.until_unix_ns = unix_ns_;
  }
  plan(node);
}

void NodeBook::exclude_for_drain(const WorkerName& name, std::optional<Duration> time) {
  NodeRecord& node = record(name);
  // A failed deep check excludes the node for longer than the drain.
  if (node.excluded && node.suspicion == Suspicion::kDeepCheckFailed) return;
  node.for_drain = false;  // the new plan replaces the former one
  exclude(name, Suspicion::kPerson, node.drain_reason, time);
  node.for_drain = true;
}

void NodeBook::end_drain(const WorkerName& name) {
  NodeRecord& node = record(name);
  node.drain_unix_ns = 0;
  drains_.erase(name);
  plan(node);
}

void NodeBook::require_check(const WorkerName& name) {
  NodeRecord& node = record(name);
  node.check_due = true;
  plan(node);
}

bool NodeBook::count_fault(const WorkerName& name, JobId own, std::string_view fault,
                           std::string& reason) {
  NodeRecord& node = record(name);
  const bool one_program = own.value() != 0 && own == node.fault_job;
  const bool second =
      !node.fault.empty() && !one_program && is_within(node.fault_unix_ns, unix_ns_, kFaultsWindow);
  reason = absl::StrCat("two faults there within an hour: ", node.fault, "; ", av(fault));
  node.fault = std::string(fault);
  node.fault_unix_ns = unix_ns_;
  node.fault_job = own;
  plan(node);
  return second;
}

void NodeBook::note_check(const WorkerName& name, NodeCheckResult result) {
  NodeRecord& node = record(name);
  node.checked_unix_ns = unix_ns_;
  node.check = std::move(result);
  if (!node.check.passed) {
    exclude(name, Suspicion::kCheckFailed, node.check.sentence);
  } else if (!node.excluded) {
    node.check_due = false;
  }
  plan(node);
}

void NodeBook::admit(const WorkerName& name) {
  if (records_.contains(name)) forget(WorkerName(name));  // `name` may refer into the record itself
}

// Deletes the oldest records beyond kNodeRecordsMax, those with a planned drain last.
void NodeBook::forget_old() {
  while (records_.size() > kNodeRecordsMax) {
    const auto oldest =
        std::min_element(records_.begin(), records_.end(), [&](const auto& a, const auto& b) {
          const auto order = [&](const auto& entry) {
            return std::tuple(changed_.contains(entry.first), entry.second.drain_unix_ns != 0,
                              entry.second.since_unix_ns);
          };
          return order(a) < order(b);
        });
    forget(WorkerName(oldest->first));
  }
}

NodeBook::Changes NodeBook::take_changes() {
  Changes changes;
  for (const WorkerName& name : std::exchange(changed_, {}))
    changes.stored.push_back(records_.at(name));
  changes.forgotten = std::exchange(forgotten_, {});
  std::erase_if(changes.forgotten, [&](const WorkerName& name) { return records_.contains(name); });
  return changes;
}

std::string exclusion_text(const NodeRecord& record) {
  return absl::StrCat(record.worker.value(), " (", av(rule_of(record.suspicion).name), ": ",
                      record.reason, ")");
}

}  // namespace muster::coordinator
