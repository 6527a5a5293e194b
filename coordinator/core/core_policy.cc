// The queue policy: quotas, fair share and usage.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "coordinator/core/core.h"
#include "coordinator/core/queue/running_use.h"

namespace muster::coordinator {
namespace {

// Usage is stored this often: a coordinator that crashes forgets as much.
constexpr Duration kUsageStoredEvery = std::chrono::minutes(1);
// A longer time between two ticks was a standstill of the coordinator.
constexpr Duration kUsageStepMax = std::chrono::minutes(1);

}  // namespace

void Core::on(const QueuePolicyChanged& event) {
  if (policy_text_ != event.text && !event.text.empty()) {
    policy_text_ = event.text;
    actions_.push_back(PersistQueuePolicy{event.text});
  }
  if (policy_ == event.policy) return;
  policy_ = event.policy;
  charged_at_ = time_.now;
  schedule_needed_ = true;
}

bool Core::has_gpus() const {
  return std::ranges::any_of(fleet_.all(),
                             [](const auto& entry) { return !entry.second.gpus.empty(); });
}

// Returns an error if the policy does not allow the submission.
absl::Status Core::check_policy(const JobSpec& spec) const {
  if (!policy_) return absl::OkStatus();
  const QuotaUses needed = uses_of(spec, has_gpus());
  for (const Party& party : parties_of(spec)) {
    const Quota& quota = quota_of(*policy_, party);
    if (quota.priority_max && spec.priority > *quota.priority_max) {
      return absl::PermissionDeniedError(absl::StrCat("spec.priority is ", spec.priority,
                                                      ": the highest one of ", text_of(party),
                                                      " is ", *quota.priority_max));
    }
    for (size_t kind = 0; kind < kQuotaKinds; ++kind) {
      const auto most = quota.of(static_cast<QuotaKind>(kind));
      if (!most || static_cast<QuotaKind>(kind) == QuotaKind::kWaitingJobs) continue;
      if (needed[kind] <= *most) continue;
      return absl::PermissionDeniedError(absl::StrCat(
          "the job could never start: with its spares it needs ", needed[kind], ", and the quota ",
          av(kQuotaNames[kind]), " of ", text_of(party), " is ", *most));
    }
    const auto waiting_max = quota.of(QuotaKind::kWaitingJobs);
    if (!waiting_max) continue;
    int64_t waiting = 0;
    for (const JobQueue::Entry& entry : queue_.in_order()) {
      const Job& job = jobs_.at(entry.job);
      const auto parties = parties_of(job.spec);
      waiting += job.attempt == Attempt(0) && std::ranges::find(parties, party) != parties.end();
    }
    if (waiting >= *waiting_max) {
      return absl::ResourceExhaustedError(absl::StrCat(
          waiting, " jobs of ", text_of(party), " wait: the quota waiting_jobs_max is ",
          *waiting_max, "; cancel some, or submit again when some have started"));
    }
  }
  return absl::OkStatus();
}

// Adds the time since the last call to the usage of running jobs.
void Core::charge_usage() {
  if (!policy_ || time_.unix_ns == 0) return;
  const Duration passed =
      std::min(time_.now - std::exchange(charged_at_, time_.now), kUsageStepMax);
  std::map<Party, double> ranks;
  for (const JobId id : attempts_.jobs()) {
    const Job& job = jobs_.at(id);
    for (const Party& party : parties_of(job.spec))
      ranks[party] += static_cast<double>(std::ssize(job.placement) +
                                          std::ssize(job.held) * job.spec.ranks_per_node);
  }
  for (const auto& [party, count] : ranks)
    usages_.add(party, count * to_seconds(passed), policy_->half_life, time_.unix_ns);
  if (time_.now < usage_stored_at_ + kUsageStoredEvery) return;
  usage_stored_at_ = time_.now;
  for (UsageRecord& record : usages_.take_changes(policy_->half_life, time_.unix_ns))
    actions_.push_back(PersistUsage{std::move(record)});
}

// Places a backfilled job between two attempts behind the jobs of its priority that waited when it
// started, because before them it would delay the job whose nodes it got.
void Core::set_place_behind(const std::vector<JobQueue::Entry>& entries,
                            JobQueue::Entry& entry) const {
  const int64_t started = jobs_.at(entry.job).started_unix_ns;
  const JobQueue::Entry* last = nullptr;
  for (const JobQueue::Entry& other : entries) {
    const Job& job = jobs_.at(other.job);
    if (other.priority != entry.priority || job.attempt > Attempt(0) || !job.waits_for.empty() ||
        job.submitted_unix_ns > started)
      continue;
    if (last == nullptr || JobQueue::precedes(*last, other)) last = &other;
  }
  if (last == nullptr) return;
  entry.use_of_team = last->use_of_team;
  entry.use_of_user = std::nextafter(last->use_of_user, std::numeric_limits<double>::infinity());
}

// Sets the usage per share of each job's team and user, by which jobs of equal priority are
// ordered. A job between two attempts comes before those that have not started. A running job that
// was backfilled comes last.
void Core::set_fair_shares(std::vector<JobQueue::Entry>& entries) const {
  if (!policy_) return;
  std::map<Party, double> known;
  const auto use_of = [&](const Party& party) {
    const auto [entry, is_new] = known.try_emplace(party);
    if (is_new)
      entry->second =
          usages_.of(party, policy_->half_life, time_.unix_ns) / quota_of(*policy_, party).shares;
    return entry->second;
  };
  for (JobQueue::Entry& entry : entries) {
    const Job& job = jobs_.at(entry.job);
    const std::vector<Party> parties = parties_of(job.spec);
    for (const Party& party : parties) {  // the policy may be newer than the job
      const Quota& quota = quota_of(*policy_, party);
      if (quota.priority_max) entry.priority = std::min(entry.priority, *quota.priority_max);
    }
    if (job.attempt > Attempt(0) && job.state == JobState::kQueued) continue;
    if (job.is_backfilled) {
      entry.use_of_team = entry.use_of_user = std::numeric_limits<double>::infinity();
      continue;
    }
    entry.use_of_team = use_of(parties.back());
    entry.use_of_user = use_of(parties.front());
  }
  for (JobQueue::Entry& entry : entries) {
    const Job& job = jobs_.at(entry.job);
    if (job.is_backfilled && job.state == JobState::kQueued) set_place_behind(entries, entry);
  }
}

std::vector<ShareRow> Core::shares() const {
  const QueuePolicy none;
  const QueuePolicy& policy = policy_ ? *policy_ : none;
  const RunningUse running(&policy, jobs_, queue_, attempts_.jobs(), has_gpus());
  std::set<Party> parties;
  for (const auto& [party, uses] : running.parties()) parties.insert(party);
  for (const auto& [party, usage] : usages_.all()) parties.insert(party);
  for (const auto& [name, quota] : policy.users) parties.insert({false, name});
  for (const auto& [name, quota] : policy.teams) parties.insert({true, name});
  std::vector<ShareRow> rows;
  for (const Party& party : parties) {
    const auto uses = running.parties().find(party);
    rows.push_back({party, quota_of(policy, party),
                    usages_.of(party, policy.half_life, time_.unix_ns),
                    uses == running.parties().end() ? QuotaUses{} : uses->second});
  }
  return rows;
}

}  // namespace muster::coordinator
