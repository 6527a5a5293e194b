// The allocations of a Slurm job. Each ends by its time limit, by preemption, or for lack of nodes,
// and requests the next one. Slurm itself requeues only what it preempts and what a dead node
// ended.
#pragma once

#include <cstdint>
#include <string>

#include "cli/slurm/slurm_job.h"
#include "common/time.h"

namespace muster::cli {

// Allocations in a row without progress; they never complete a job, and Slurm would repeat them
// forever.
constexpr int32_t kFruitlessAllocationsMax = 5;

// All allocations of a job, unless --max-turns is given. For a program that reports no steps, and
// for a fleet, it is unknown whether an allocation made progress.
constexpr int32_t kAllocationsDefault = 100;
constexpr int32_t kAllocationsMax = 1'000'000;

// The stored record of a job's allocations, for the next one.
struct AllocationRecord {
  std::string job{};  // Slurm's number, of a chain the array's; another number resets the record
  int64_t step = -1;  // the highest step that any allocation has completed
  int32_t fruitless = 0;    // allocations without progress in a row, up to the last one
  int32_t allocations = 0;  // number of allocations
};
struct Allocation {
  std::string job{};   // as in the record
  int64_t step = -1;   // its highest known step
  Duration lasted{};   // until it was asked to leave
  bool counts = true;  // It reports steps, as the trainer does. A program may report none.
};
// Adds one allocation. For a program that has reported no step in any allocation, one that ends at
// once counts as no progress. Pure.
AllocationRecord with_allocation(const AllocationRecord& before, const Allocation& allocation);

// Returns advice when the ranks took most of the lead between SIGUSR1 and the time limit; otherwise
// an empty string. `saved`: they had finished by then. Pure.
std::string lead_advice(int64_t lead_seconds, int64_t took_seconds, bool saved);

// The origin of an allocation's exit code: 2 of a job means bad input, but 2 of a node may mean a
// file system that is not mounted there.
enum class Verdict { kNone, kJob, kInput, kAllocations };
struct AllocationEnd {
  int exit_code = 0;
  Verdict verdict = Verdict::kNone;
};
// True for a chain that has finished, or that another allocation cannot help. Pure.
bool ends_chain(const AllocationEnd& end);

// The origin of a job's next allocation.
enum class AllocationSource { kNone, kRequeue, kChain };

// Not thread-safe.
class NextAllocation {
 public:
  // `record_path`: the file of the AllocationRecord. `allocations_max`: of the job, or of the
  // chain, in total.
  NextAllocation(const SlurmJob& job, std::string record_path, AllocationSource by,
                 int32_t allocations_max)
      : job_(job),
        record_path_(std::move(record_path)),
        by_(by),
        allocations_max_(allocations_max) {}

  // Requests the next allocation from Slurm once, and again only if the request failed. Does
  // nothing if none is wanted, or if too many were without progress or there were too many. For a
  // chain, whose next task is queued already, it only counts this allocation.
  void request(const Allocation& allocation);
  // No other follows: too many made no progress, or there were too many.
  bool was_last() const { return was_last_; }
  // The result: "is queued again …"; empty before request().
  const std::string& outcome() const { return outcome_; }

 private:
  void count(Allocation allocation);

  const SlurmJob& job_;
  const std::string record_path_;
  const AllocationSource by_;
  const int32_t allocations_max_;
  bool is_settled_ = false, was_last_ = false;
  std::string outcome_;
  std::string remark_;  // about the allocations so far
};

}  // namespace muster::cli
