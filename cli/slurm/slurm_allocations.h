// The consecutive allocations of a Slurm job. An allocation ends by its time limit, by preemption,
// or because too few nodes are left; before it ends, Muster requests the next allocation. Slurm
// itself requeues only jobs that it preempts and jobs that a dead node has ended.
#pragma once

#include <cstdint>
#include <string>

#include "cli/slurm/slurm_job.h"
#include "common/time/time.h"

namespace muster::cli {

// Maximum number of consecutive allocations without progress. Without this limit, a job that cannot
// progress would be requeued forever.
constexpr int32_t kFruitlessAllocationsMax = 5;

// Maximum number of allocations of a job, unless --max-turns is given. It is needed for a program
// that reports no steps and for a fleet, because their progress is unknown.
constexpr int32_t kAllocationsDefault = 100;
constexpr int32_t kAllocationsMax = 1'000'000;

// The stored record of a job's allocations, for the next one.
struct AllocationRecord {
  // Slurm's job number, or for a chain the array's; another number resets the record
  std::string job{};
  int64_t step = -1;  // the highest step that any allocation has completed
  // number of consecutive allocations without progress, up to the last one
  int32_t fruitless = 0;
  int32_t allocations = 0;  // total number of allocations
};
// The facts about one allocation that its record needs.
struct Allocation {
  std::string job{};   // same as AllocationRecord::job
  int64_t step = -1;   // the highest step that is known to be completed
  Duration lasted{};   // time from its start to the request to leave
  bool counts = true;  // false: the job's program reports no steps, so its progress is unknown
};
// Returns the record `before` plus one allocation. For a program that has never reported a step, an
// allocation that ends at once counts as one without progress. Pure.
AllocationRecord with_allocation(const AllocationRecord& before, const Allocation& allocation);

// Returns advice for the user if saving took most of the time between SIGUSR1 and the time limit;
// otherwise "". `lead_seconds`: that time; `took_seconds`: the time that the ranks took; `saved`:
// whether they finished. Pure.
std::string lead_advice(int64_t lead_seconds, int64_t took_seconds, bool saved);

// The origin of an allocation's exit code. The exit code 2 of the job means bad input, but the exit
// code 2 of one node may mean that a file system is not mounted there.
enum class Verdict { kNone, kJob, kInput, kAllocations };
// The result of an allocation.
struct AllocationEnd {
  int exit_code = 0;
  Verdict verdict = Verdict::kNone;
  bool is_futile = false;  // the job has failed by its own repeated faults
};
// Returns whether the chain needs no further allocation, because it has finished or cannot succeed.
// Pure.
bool ends_chain(const AllocationEnd& end);

// The way in which a job gets its next allocation: not at all, by a requeue, or as the next task of
// its chain.
enum class AllocationSource { kNone, kRequeue, kChain };

// Requests the next allocation of a job. Not thread-safe.
class NextAllocation {
 public:
  // `record_path`: the file with the AllocationRecord. `allocations_max`: maximum number of
  // allocations of the job, or of the whole chain.
  NextAllocation(const SlurmJob& job, std::string record_path, AllocationSource by,
                 int32_t allocations_max)
      : job_(job),
        record_path_(std::move(record_path)),
        by_(by),
        allocations_max_(allocations_max) {}

  // Requests the next allocation from Slurm. A repeated call has an effect only if the request has
  // failed before. Does nothing if the source is kNone, after kFruitlessAllocationsMax allocations
  // without progress, or after allocations_max allocations. For a chain, whose next task is queued
  // already, only records this allocation.
  void request(const Allocation& allocation);
  // Returns whether no allocation follows because a limit was reached.
  bool was_last() const { return was_last_; }
  // Returns the result of request() for people, "is queued again …"; "" before request().
  const std::string& outcome() const { return outcome_; }

 private:
  void count(Allocation allocation);

  const SlurmJob& job_;
  const std::string record_path_;
  const AllocationSource by_;
  const int32_t allocations_max_;
  bool is_settled_ = false, was_last_ = false;
  std::string outcome_;
  std::string remark_;  // sentence about the allocations so far
};

}  // namespace muster::cli
