#include "coordinator/core/queue/running_use.h"

#include <absl/strings/str_cat.h>

#include "common/job/gpu.h"
#include "common/text/absl_view.h"

namespace muster::coordinator {

QuotaUses uses_of(const JobSpec& spec, bool has_gpus) {
  const int64_t nodes = int64_t{spec.nodes} + spec.spares;
  const int64_t ranks = nodes * spec.ranks_per_node;
  const int64_t gpus =
      spec.gpus_per_rank == kGpusOfSlot ? (has_gpus ? ranks : 0) : ranks * spec.gpus_per_rank;
  return {ranks, gpus, nodes, 1, 0};
}

RunningUse::RunningUse(const QueuePolicy* policy, const JobTable& jobs, const JobQueue& queue,
                       const std::vector<JobId>& live, bool has_gpus)
    : policy_(policy), jobs_(jobs), has_gpus_(has_gpus) {
  for (const JobId id : live) add(jobs.at(id));
  for (const JobQueue::Entry& entry : queue.in_order()) {
    const Job& job = jobs.at(entry.job);
    if (job.attempt > Attempt(0)) {
      add(job);
    } else if (policy_ != nullptr) {
      for (const Party& party : parties_of(job.spec))
        ++uses_[party][static_cast<size_t>(QuotaKind::kWaitingJobs)];
    }
  }
}

void RunningUse::add(const Job& job) {
  if (job.spec.is_array_task()) ++tasks_[key_of(job.spec)];
  if (policy_ == nullptr) return;
  const QuotaUses added = uses_of(job.spec, has_gpus_);
  for (const Party& party : parties_of(job.spec)) {
    QuotaUses& uses = uses_[party];
    for (size_t kind = 0; kind < kQuotaKinds; ++kind) uses[kind] += added[kind];
    if (job.is_backfilled) backfilled_[party].push_back(&job);
  }
}

void RunningUse::reserve(const Job& job, Reserve what) {
  if (policy_ == nullptr || job.attempt > Attempt(0) || what == Reserve::kNothing) return;
  const QuotaUses needed = uses_of(job.spec, has_gpus_);
  auto& reserved = what == Reserve::kQuota ? reserved_for_quota_ : reserved_for_nodes_;
  for (const Party& party : parties_of(job.spec)) {
    QuotaUses& uses = reserved[party];
    for (size_t kind = 0; kind < kQuotaKinds; ++kind) uses[kind] += needed[kind];
  }
}

// Returns the backfilled jobs of the party that have started although `job` waited before them.
std::vector<JobId> RunningUse::backfilled_before(const Job& job, const Party& party) const {
  std::vector<JobId> before;
  const auto known = backfilled_.find(party);
  if (known == backfilled_.end()) return before;
  for (const Job* other : known->second) {
    const bool precedes = job.spec.priority != other->spec.priority
                              ? job.spec.priority > other->spec.priority
                              : job.id < other->id;
    if (precedes && job.submitted_unix_ns <= other->started_unix_ns) before.push_back(other->id);
  }
  return before;
}

RunningUse::Wait RunningUse::why_waits(const Job& job) const {
  Wait wait;
  if (job.attempt > Attempt(0)) return wait;
  if (job.spec.array_running_max > 0) {
    const auto running = tasks_.find(key_of(job.spec));
    if (running != tasks_.end() && running->second >= job.spec.array_running_max) {
      wait.text = absl::StrCat("waits for a task of its array to end: at most ",
                               job.spec.array_running_max, " run at the same time");
      return wait;
    }
  }
  if (policy_ == nullptr) return wait;
  const auto amount = [](const std::map<Party, QuotaUses>& of, const Party& party, size_t kind) {
    const auto known = of.find(party);
    return known == of.end() ? 0 : known->second[kind];
  };
  wait.reserve = Reserve::kNodes;
  wait.may_backfill = true;
  bool would_start = true;  // without the backfilled jobs
  const QuotaUses needed = uses_of(job.spec, has_gpus_);
  for (const Party& party : parties_of(job.spec)) {
    const Quota& quota = quota_of(*policy_, party);
    const std::vector<JobId> backfilled = backfilled_before(job, party);
    for (size_t kind = 0; kind < kQuotaKinds; ++kind) {
      const auto most = quota.of(static_cast<QuotaKind>(kind));
      if (!most || static_cast<QuotaKind>(kind) == QuotaKind::kWaitingJobs) continue;
      const int64_t used = amount(uses_, party, kind);
      const int64_t for_quota = amount(reserved_for_quota_, party, kind);
      const int64_t for_nodes = amount(reserved_for_nodes_, party, kind);
      const int64_t with_this = used + for_quota + needed[kind];
      if (needed[kind] == 0 || with_this + for_nodes <= *most) continue;
      const std::string limit =
          absl::StrCat(av(kQuotaNames[kind]), "=", *most, " of ", text_of(party));
      if (needed[kind] > *most) {
        return {absl::StrCat("waits for a larger quota: ", limit, ", and it needs ", needed[kind])};
      }
      if (wait.text.empty()) {
        wait.text =
            used + needed[kind] <= *most
                ? absl::StrCat("waits behind an earlier job for its quota: ", limit)
                : absl::StrCat("waits for its quota: ", limit, " (muster shares shows its use)");
      }
      int64_t lent = 0;
      for (const JobId id : backfilled) lent += uses_of(jobs_.at(id).spec, has_gpus_)[kind];
      wait.may_backfill = wait.may_backfill && with_this <= *most;
      if (with_this - lent > *most) wait.reserve = Reserve::kQuota;
      would_start = would_start && with_this + for_nodes - lent <= *most;
      if (lent > 0)
        wait.backfilled.insert(wait.backfilled.end(), backfilled.begin(), backfilled.end());
    }
  }
  if (wait.text.empty()) return {};
  if (!would_start) wait.backfilled.clear();
  return wait;
}

}  // namespace muster::coordinator
