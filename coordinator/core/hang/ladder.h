// The path of a job that may hang, as a state machine: suspicion, a dump of its stacks, and the
// verdict.
//
//   RUNNING  becomes SUSPECT if nothing moves for longer than usual (hang/hang_detector.h). In a
//            long phase one sample is taken now and then, which may prove that the job cannot
//            continue
//   SUSPECT  waits for the pages of every reachable worker, since newer pages may be in flight; or
//            for the next dump, after an inconclusive dump
//   DUMPING  takes two samples of all stacks, and derives a verdict (hang/suspicion.h)
//
// The ladder never stops a job that moves. Each decision is a step that the caller takes: a state,
// a reason and messages. The ladder writes evidence to the incident book, and begins and drops
// dumps in the dump table. A restarted coordinator does not have the earlier samples, and takes new
// ones. Volatile. Pure; called on one thread at a time.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/action.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/fleet/pending_node_checks.h"
#include "coordinator/core/hang/dump_table.h"
#include "coordinator/core/hang/hang_detector.h"
#include "coordinator/core/hang/suspicion.h"
#include "coordinator/core/incident/incident_book.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// A read-only view of the attempt.
struct LadderView {
  const Job& job;
  const RanksByWorker& ranks;
  const std::set<WorkerName>& unreachable;
  // A rank has reported the loss of a peer, and the peer's own report is awaited.
  bool peer_lost = false;
  // A sentence about nodes that cannot reach each other; empty: none are known.
  std::string cut_link{};
};

// The state of other subjects that a step reads and changes. Refers to its arguments.
struct LadderContext {
  const Fleet& fleet;
  DumpTable& dumps;
  IncidentBook& incidents;
  const CoreOptions& options;
  CoreTime time;
};

// A decision, which the caller carries out: the messages are sent, and the job enters the state.
struct LadderStep {
  JobState state{};
  // The new reason of the job. Empty: the reason does not change.
  std::string reason;
  std::vector<SendToWorker> messages = {};
};

// The end of an attempt that is stuck.
struct StuckJob {
  Fault fault;
  // Set if the evidence implicates the node of the fault.
  std::optional<NodeSuspicion> node;
  std::vector<SendToWorker> messages;
  // The evidence does not prove that the job is stuck: it has only stood still for too long.
  bool is_inconclusive = false;
  // The cause is LadderView::cut_link.
  bool is_cut_link = false;
};

class Ladder {
 public:
  // Returns the next step of a running job; nullopt if the job stays in its state for now. In
  // DUMPING, the caller calls is_dump_over() and then conclude() instead. `confirmable_at`: the
  // time from which stacks may confirm the loss of every unreachable worker.
  std::optional<LadderStep> next(const LadderView& view, Instant confirmable_at,
                                 const HangDetector& hang, const LadderContext& context);
  // Ends the probe of a job in a long phase, if there is one and its sample has arrived. If the
  // probe proves a hang, next() returns the step to SUSPECT.
  void conclude_probe(const LadderView& view, HangDetector& hang, const LadderContext& context);
  // Returns the step to SUSPECT. Requires RUNNING.
  LadderStep suspect(const LadderView& view, std::string reason, const HangDetector& hang,
                     const LadderContext& context);
  // Returns the step back to RUNNING. Requires a running job.
  LadderStep resume(const Job& job, std::string_view reason, DumpTable& dumps);
  // Returns the step back to RUNNING after all unreachable workers have become reachable; nullopt
  // if the job is not SUSPECT, or waits for the next dump.
  std::optional<LadderStep> resume_reachable(const Job& job, std::string_view reason,
                                             DumpTable& dumps);
  // Ends the suspicion and drops the pending dump, for example when the job is stopped. Returns a
  // step without a reason: to RUNNING if the job is running, and otherwise to the state that it
  // has.
  LadderStep leave(const Job& job, DumpTable& dumps);

  // Returns whether the samples of the pending dump have arrived, or can no longer arrive in time.
  // Requires DUMPING.
  bool is_dump_over(const LadderView& view, Instant confirmable_at,
                    const LadderContext& context) const;
  // Removes the pending dump from the table. Requires DUMPING.
  Dump take_dump(DumpTable& dumps);
  // Returns the step that follows from the dump; nullopt if the job is stuck.
  std::optional<LadderStep> conclude(const LadderView& view, const Dump& dump,
                                     Instant confirmable_at, HangDetector& hang,
                                     const LadderContext& context);
  // Stores the verdict on a stuck job in `incident`, or in a new incident. If workers are
  // unreachable, the verdict concerns their ranks, and StuckJob::fault does not apply. Requires
  // that conclude() returned nullopt.
  StuckJob judge_stuck(const LadderView& view, const Dump& dump, const HangDetector& hang,
                       std::optional<IncidentId>& incident, const LadderContext& context);

  // Records that the worker's pages have arrived. Returns whether they were awaited.
  bool receive_pages(const WorkerName& worker) { return state_.pages_awaited.erase(worker) > 0; }
  // Closes the incident of an open inconclusive hang, if there is one.
  void close_inconclusive(IncidentBook& incidents, std::string_view action, std::string text,
                          int64_t unix_ns);
  // Ends an open inconclusive hang whose cause is found, and returns its incident, which remains
  // open; nullopt if there is none.
  std::optional<IncidentId> take_inconclusive();
  // Ends the retention of the inconclusive hang's incident. Requires that the attempt has ended.
  void release(IncidentBook& incidents) const;
  // Excludes coordinator downtime: extends every deadline by `time`.
  void excuse(Duration time) { state_.excuse(time); }
  const HangSuspicion& suspicion() const { return state_; }

 private:
  // Takes one sample of a job that makes no progress in a long phase; nullopt if none is due. The
  // programs' own dumps are not requested, because the job may be healthy.
  std::optional<LadderStep> probe(const LadderView& view, const HangDetector& hang,
                                  const LadderContext& context);
  std::optional<LadderStep> sample_once_more(const LadderView& view, const Dump& dump, bool unseen,
                                             HangDetector& hang, const LadderContext& context);
  // Returns `step` with the next dump after `pause`.
  LadderStep sample_later(LadderStep step, const Job& job, Duration pause,
                          const LadderContext& context);
  Blame judge(const LadderView& view, const Dump& dump, IncidentKind kind, const HangDetector& hang,
              std::optional<IncidentId>& incident, std::vector<SendToWorker>& messages,
              const LadderContext& context);

  HangSuspicion state_;
};

}  // namespace muster::coordinator
