// The use of the fleet by users, teams and arrays during one placement pass, and the reasons why
// jobs wait for it to fall: quotas of the policy, and JobSpec::array_running_max. A job between two
// attempts counts as running, because its restart must not wait for a job that took its place. Jobs
// count at full size, with their spares. A waiting job reserves the quota that it needs against
// later jobs of the same user or team, so that small jobs do not keep a large one waiting. A job
// with a time limit may use what is reserved for jobs that wait for nodes, if it ends before these
// can start (placement/placement_pass.h). Pure; called on one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/job/ids.h"
#include "coordinator/core/queue/job_queue.h"
#include "coordinator/core/queue/job_table.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/queue_policy.h"

namespace muster::coordinator {

// The amounts of a job or of a party, by QuotaKind.
using QuotaUses = std::array<int64_t, kQuotaKinds>;
// Returns the amounts of a running job. `has_gpus`: whether the fleet has GPUs. A rank with its
// slot's share of GPUs then counts as one GPU.
QuotaUses uses_of(const JobSpec& spec, bool has_gpus);

class RunningUse {
 public:
  // `policy`: null: no quotas. `live`: the jobs that have ranks. The object refers to its
  // arguments.
  RunningUse(const QueuePolicy* policy, const JobTable& jobs, const JobQueue& queue,
             const std::vector<JobId>& live, bool has_gpus);

  // The purpose for which a waiting job reserves its quota.
  enum class Reserve {
    kNothing,  // it does not reserve its quota
    kQuota,    // it waits until running jobs end
    kNodes,    // it waits for nodes, or behind jobs that do
  };
  struct Wait {
    // The reason why the job must not start now; "": there is none. Contains no amounts that change
    // while the job waits, because each new reason is stored.
    std::string text{};
    Reserve reserve = Reserve::kNothing;
    // The job lacks only quota that is reserved for jobs that wait for nodes.
    bool may_backfill = false;
    // The job would have its quota without these jobs, which were backfilled before it.
    std::vector<JobId> backfilled{};
  };

  // Adds a job that starts for the first time.
  void add(const Job& job);
  // Called in the order of the queue.
  Wait why_waits(const Job& job) const;
  // Reserves the quotas of a waiting job against those that follow in the queue.
  void reserve(const Job& job, Reserve what);
  const std::map<Party, QuotaUses>& parties() const { return uses_; }

 private:
  using ArrayKey = std::pair<std::string_view, std::string_view>;
  static ArrayKey key_of(const JobSpec& spec) {
    return {spec.owner.empty() ? spec.user : spec.owner, spec.array};
  }

  std::vector<JobId> backfilled_before(const Job& job, const Party& party) const;

  const QueuePolicy* policy_;
  const JobTable& jobs_;
  bool has_gpus_;
  std::map<ArrayKey, int32_t> tasks_;
  std::map<Party, QuotaUses> uses_;
  // The needs of the waiting jobs of each party that were visited so far.
  std::map<Party, QuotaUses> reserved_for_quota_;
  std::map<Party, QuotaUses> reserved_for_nodes_;
  // Running jobs that were backfilled.
  std::map<Party, std::vector<const Job*>> backfilled_;
};

}  // namespace muster::coordinator
