// Stacks and evidence of a job's ranks as their workers send them: one dump of one attempt, and
// what moved while it was made. Pure.
//
// Reports come from many workers, late, twice or not at all. What was not asked for is left out.
// One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/rank_evidence.h"
#include "common/stack_forest.h"
#include "common/stack_tree.h"
#include "common/time.h"
#include "coordinator/core/action.h"
#include "coordinator/core/blame/blame.h"
#include "coordinator/core/event.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

class Dump {
 public:
  using Asked = std::map<WorkerName, std::vector<Rank>>;

  Dump(JobId job, Attempt attempt, int32_t samples, Asked asked);

  JobId job() const { return job_; }
  Attempt attempt() const { return attempt_; }
  const Asked& asked() const { return asked_; }

  // False: nobody asked for it, or it is there already.
  bool add(const StackReportReceived& report);
  // The workers that have not sent all samples.
  const std::set<WorkerName>& waiting() const { return waiting_; }
  // The workers that have sent no sample, in order.
  std::vector<WorkerName> silent() const;

  size_t samples() const { return samples_.size(); }
  // Added up anew each time.
  StackTree stacks(size_t sample) const { return samples_[sample].stacks.total(); }
  // In their order; of workers that sent this sample.
  std::vector<RankEvidence> ranks(size_t sample) const;
  // The newest of each rank that was asked for, in their order. One whose worker is silent says so.
  std::vector<RankEvidence> newest_ranks() const;
  // The newest sample that anybody has sent.
  StackTree newest_stacks() const;
  // "node3: Out of memory: Killed process 17", of all workers, as they were read last.
  std::vector<std::string> kernel_messages() const;

  // A worker that has a module of the stacks mapped, or had; empty when there is none.
  WorkerName worker_with(const StackModule& module) const;

  StackDump to_people() const;

 private:
  struct Sample {
    StackForest stacks;
    std::map<int32_t, RankEvidence> ranks;
    std::set<WorkerName> from;
  };

  JobId job_;
  Attempt attempt_;
  std::vector<Sample> samples_;
  Asked asked_;
  std::set<WorkerName> waiting_;
  std::map<WorkerName, std::vector<std::string>> kernel_messages_;
  std::map<StackModule, WorkerName> modules_;
};

// The conclusion from two samples whether a job can go on.
enum class Motion {
  kNone,    // it cannot: a rank is stopped or dead, or all wait for each other
  kUnsure,  // nothing moved, and it may: a rank waits for nobody, or everybody has entered what is not completed
  kUnseen,  // a sample is missing of a rank whose worker may still answer
  kStacks,  // a rank that waits for nobody was somewhere else
  kProgress,  // collectives, phases or steps went on
};

// Returns what moved from the first to the last sample. Threads that work beside the computation do
// not count: a checkpoint being written does not make a step. `gone`: ranks of which nothing will
// be seen.
Motion motion_in(const Dump& dump, const std::map<Rank, std::string>& gone);

// Whether the group is one of those beside the computation: "data#6", by its channel
// (trainer_core/comm/process_groups.h).
bool is_background(const GroupEvidence& group);
// It waits in a collective that the computation needs.
bool waits_for_peers(const RankEvidence& rank);

// The input of blame. `gone`: why nothing can be read of some ranks.
BlameInput blame_input(const Job& job, const Dump& dump, std::map<Rank, std::string> gone);

}  // namespace muster::coordinator
