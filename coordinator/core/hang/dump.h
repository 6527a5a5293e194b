// One dump of an attempt: one or more samples of the stacks and the evidence of its ranks,
// collected from the workers' reports. Functions below compare the samples. Pure.
//
// Reports arrive from many workers, and may be late, duplicate or missing. Parts that were not
// requested are ignored. Called on one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/job/ids.h"
#include "common/job/rank_evidence.h"
#include "common/stacks/stack_forest.h"
#include "common/stacks/stack_tree.h"
#include "common/time/time.h"
#include "coordinator/core/action.h"
#include "coordinator/core/blame/blame.h"
#include "coordinator/core/event.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

class Dump {
 public:
  using Requested = std::map<WorkerName, std::vector<Rank>>;

  Dump(JobId job, Attempt attempt, int32_t samples, Requested requested);

  JobId job() const { return job_; }
  Attempt attempt() const { return attempt_; }
  const Requested& requested() const { return requested_; }

  // Adds a report. Returns false if it was not requested or is a duplicate.
  bool add(const StackReportReceived& report);
  // Returns the workers that have not sent all samples.
  const std::set<WorkerName>& waiting() const { return waiting_; }
  // Returns the workers that have sent no sample, by name.
  std::vector<WorkerName> silent() const;

  size_t samples() const { return samples_.size(); }
  // Returns the stacks of all workers in one sample. Merges them on each call.
  StackTree stacks(size_t sample) const { return samples_[sample].stacks.total(); }
  // Returns the evidence in one sample, by rank, from the workers that sent the sample.
  std::vector<RankEvidence> ranks(size_t sample) const;
  // Returns the newest evidence of each requested rank, by rank. If the rank's worker is silent,
  // its evidence contains only this problem.
  std::vector<RankEvidence> newest_ranks() const;
  // Returns the stacks of the newest sample that any worker has sent.
  StackTree newest_stacks() const;
  // Returns the newest kernel messages of all workers: "node3: Out of memory: Killed process 17".
  std::vector<std::string> kernel_messages() const;

  // Returns a worker whose stacks contain the module; empty if there is none.
  WorkerName worker_with(const StackModule& module) const;

  // Returns the newest stacks and evidence, as `muster stacks` displays them.
  JobStackDump to_stack_dump() const;

 private:
  struct Sample {
    StackForest stacks;
    std::map<int32_t, RankEvidence> ranks;
    std::set<WorkerName> from;
  };

  JobId job_;
  Attempt attempt_;
  std::vector<Sample> samples_;
  Requested requested_;
  std::set<WorkerName> waiting_;
  std::map<WorkerName, std::vector<std::string>> kernel_messages_;
  std::map<StackModule, WorkerName> modules_;
};

// The progress between the two samples of a dump, which shows whether the job can continue.
enum class Motion {
  kNone,  // the job cannot continue: a rank is stopped or dead, or all ranks wait for each other
  // Nothing moved, but the job may continue: a rank waits for no other rank, or all members have
  // entered a collective that is not complete.
  kUnsure,
  // A sample of a rank is missing, and the rank's worker may still send it.
  kUnseen,
  // A rank that waits for no other rank is at another place in its code.
  kStacks,
  kProgress,  // collectives, phases or steps progressed
};

// Whether a job without progress may continue, by what the processes of its ranks do.
enum class Standstill {
  kMayContinue,   // a process works, sleeps for a time or uses a device, or its activity is unknown
  kIdle,          // no process uses CPU time, reads or writes
  kStoppedChild,  // a process that a rank has started is stopped, and its others do nothing
};

// The activity of each rank at one moment.
using Activities = std::map<int32_t, ProcessActivity>;
// Returns the activities in one sample of the dump, without ranks of `gone`.
Activities activities_in(const Dump& dump, size_t sample, const std::map<Rank, std::string>& gone);
// Returns what the ranks that wait for no other rank do in the dump. `since`: activities before the
// dump, `elapsed` before its last sample, with which the last sample is compared as well; empty: it
// is not. Ranks that wait for others may poll, and do not count.
Standstill standstill_in(const Dump& dump, const std::map<Rank, std::string>& gone,
                         const Activities& since, Duration elapsed);

// Returns the progress from the first to the last sample. Background threads do not count: writing
// a checkpoint does not complete a step. `gone`: ranks whose evidence is not available.
Motion motion_in(const Dump& dump, const std::map<Rank, std::string>& gone);

// Returns whether the group belongs to a background channel such as "data#6"
// (trainer_core/comm/process_groups.h).
bool is_background(const GroupEvidence& group);
// Returns whether the rank waits in a collective that the computation needs.
bool is_waiting_for_peers(const RankEvidence& rank);

// Builds the input of blame. `gone`: the ranks without readable evidence, and why.
BlameInput blame_input(const Job& job, const Dump& dump, std::map<Rank, std::string> gone);

}  // namespace muster::coordinator
