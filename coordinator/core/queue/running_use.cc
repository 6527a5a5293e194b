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
    : policy_(policy), has_gpus_(has_gpus) {
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
  }
}

void RunningUse::reserve(const Job& job) {
  if (policy_ == nullptr || job.attempt > Attempt(0)) return;
  const QuotaUses needed = uses_of(job.spec, has_gpus_);
  for (const Party& party : parties_of(job.spec)) {
    QuotaUses& reserved = reserved_[party];
    for (size_t kind = 0; kind < kQuotaKinds; ++kind) reserved[kind] += needed[kind];
  }
}

std::string RunningUse::why_waits(const Job& job) {
  if (job.attempt > Attempt(0)) return "";
  if (job.spec.array_running_max > 0) {
    const auto running = tasks_.find(key_of(job.spec));
    if (running != tasks_.end() && running->second >= job.spec.array_running_max) {
      return absl::StrCat("waits for a task of its array to end: at most ",
                          job.spec.array_running_max, " run at the same time");
    }
  }
  if (policy_ == nullptr) return "";
  const QuotaUses needed = uses_of(job.spec, has_gpus_);
  for (const Party& party : parties_of(job.spec)) {
    const Quota& quota = quota_of(*policy_, party);
    const auto known = uses_.find(party);
    const auto reserved = reserved_.find(party);
    for (size_t kind = 0; kind < kQuotaKinds; ++kind) {
      const auto most = quota.of(static_cast<QuotaKind>(kind));
      if (!most || static_cast<QuotaKind>(kind) == QuotaKind::kWaitingJobs) continue;
      const int64_t used = known == uses_.end() ? 0 : known->second[kind];
      const int64_t ahead = reserved == reserved_.end() ? 0 : reserved->second[kind];
      if (needed[kind] == 0 || used + ahead + needed[kind] <= *most) continue;
      const std::string limit =
          absl::StrCat(av(kQuotaNames[kind]), "=", *most, " of ", text_of(party));
      if (needed[kind] > *most)
        return absl::StrCat("waits for a larger quota: ", limit, ", and it needs ", needed[kind]);
      reserve(job);
      if (used + needed[kind] <= *most)
        return absl::StrCat("waits behind an earlier job for its quota: ", limit);
      return absl::StrCat("waits for its quota: ", limit, " (muster shares shows its use)");
    }
  }
  return "";
}

}  // namespace muster::coordinator
