// The state of a job that may hang, and the verdict that follows from a dump of its stacks.
//
// Verdicts on the two samples of a dump:
//
//   progress                     RUNNING, with a larger allowance
//   a rank is in a phase that    RUNNING, unless the dump proves that the job cannot continue
//   may take longer
//   a rank that waits for no     RUNNING: the job is slow, and is sampled again after twice the
//   other rank is at another     time
//   place in its code
//   inconclusive                 SUSPECT: an incident records the evidence, and the job continues
//                                to run. It is sampled again for its allowance, and for
//                                HangBudgets::unsure at least; a user program for twice its longest
//                                pause, and at least for the time that fits what its processes do
//   stuck; inconclusive for      the evidence is stored, and then the attempt is stopped
//   all of that time; or silent
//   beyond its owner's limit
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/blame/blame.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/hang/dump.h"
#include "coordinator/core/hang/hang_detector.h"
#include "coordinator/core/incident/incident_book.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// A hang whose evidence does not show whether the attempt is stuck: an incident records the
// evidence, and the job continues to run. All inconclusive dumps of an attempt share one incident.
struct InconclusiveHang {
  IncidentId incident;
  bool open = false;
  // The time of the last step or change of phase when the inconclusive hang began.
  Instant progress{};
  // The time of the first inconclusive dump.
  Instant began{};
  // The activity of the ranks' processes then.
  Activities activities;
  // The time at which the job counts as stuck. Unset: the job has moved since the first
  // inconclusive dump.
  std::optional<Instant> until;
  // The reason why the job is not stopped.
  std::string reason;
};

// How long an inconclusive hang is sampled.
struct InconclusivePlan {
  Standstill standstill = Standstill::kMayContinue;
  // The time at which the job counts as stuck if nothing has moved.
  Instant until{};
};

struct HangSuspicion {
  // The time at which the newest suspicion began.
  Instant suspected{};
  // The time at which the stacks of the first verdict were available. Persists after the suspicion
  // ends.
  Instant evidence{};
  // The time of the last step or change of phase, and the newest known step, when the suspicion
  // began.
  Instant progress_then{};
  int64_t step_then = -1;
  // Workers from which no pages have arrived since the suspicion began.
  std::set<WorkerName> pages_awaited;
  std::optional<DumpId> dump;
  // The dump of one sample that examines a job in a long phase. The job continues to run.
  std::optional<DumpId> probe;
  // The number of dumps of this suspicion that some worker did not answer in time.
  int32_t late_dumps = 0;
  // The earliest time of the next dump.
  std::optional<Instant> next_dump;
  // Persists after the suspicion ends.
  std::optional<InconclusiveHang> inconclusive;

  void begin(const HangDetector& hang, Instant now);
  // Ends the suspicion, because the job moves again or is stopped.
  void end();
  // Excludes coordinator downtime: extends every deadline by `time`.
  void excuse(Duration time);
};

// The conclusion from a dump. kUnseen: a sample of some rank is missing, and its worker may still
// send it.
enum class Verdict { kProgress, kExcused, kPeerLost, kSlow, kUnseen, kInconclusive, kStuck };
// Returns the verdict on the dump. `peer_lost`: a rank has reported the loss of a peer.
// `confirmed`: the loss of every unreachable worker may be confirmed. Changes the allowance of
// `hang`.
Verdict verdict_of(const Dump& dump, const std::map<Rank, std::string>& gone,
                   const HangSuspicion& suspicion, HangDetector& hang, bool peer_lost,
                   bool confirmed, Instant now);

// Returns whether the dump, in which ranks moved as in `motion`, proves that the job cannot
// continue in any phase. A stopped child is a proof only after twice the job's longest pause.
bool proves_hang(const Dump& dump, const std::map<Rank, std::string>& gone, Motion motion,
                 const HangDetector& hang, Instant now);

// Returns the ranks without readable evidence, and why: they have ended, or are on a worker of
// `unreachable`.
std::map<Rank, std::string> ranks_gone(const Job& job, const std::set<WorkerName>& unreachable);

// Writes the blame for the dump to `incident`, or to a new incident. Returns the blame. The caller
// requests the symbols for the incident.
Blame record_verdict(IncidentBook& incidents, const Job& job, const Dump& dump,
                     const BlameInput& input, IncidentKind kind, HangSuspicion& suspicion,
                     const HangDetector& hang, std::optional<IncidentId>& incident,
                     const CoreTime& time);

// Returns how long the inconclusive hang that the dump shows is sampled. `open`: the attempt's
// inconclusive hang if it is open; else null.
InconclusivePlan inconclusive_plan(const Job& job, const Dump& dump,
                                   const std::map<Rank, std::string>& gone,
                                   const InconclusiveHang* open, const HangDetector& hang,
                                   const CoreOptions& options, Instant now);
// The reason of a job whose inconclusive hang is not yet an incident.
struct ReasonToWait {
  std::string text;
  Instant until{};  // the time from which it is one
};
// Returns the reason; nullopt if the inconclusive hang is an incident. A program may evaluate, or
// compute on much data, without reporting it.
std::optional<ReasonToWait> reason_to_wait(const Job& job, const Dump& dump,
                                           std::map<Rank, std::string> gone,
                                           const InconclusivePlan& plan, const HangDetector& hang,
                                           Instant now);
// Opens the attempt's inconclusive hang in its incident, which already contains the blame.
InconclusiveHang open_inconclusive(IncidentBook& incidents, IncidentId incident,
                                   const Blame& blamed, const HangDetector& hang,
                                   const InconclusivePlan& plan, Activities activities,
                                   Instant now);
// Renews an open inconclusive hang whose time is over. A job that has moved meanwhile, even
// briefly, gets the same time again. Returns false if the job has not moved, and therefore counts
// as stuck.
bool renew_inconclusive(InconclusiveHang& inconclusive, HangDetector& hang, Instant now);
// Closes the incident of an open inconclusive hang, if there is one.
void close_inconclusive(IncidentBook& incidents, HangSuspicion& suspicion, std::string_view action,
                        std::string text, int64_t unix_ns);
// Closes the incident of an open inconclusive hang if the job has completed a step or changed its
// phase since.
void close_if_resumed(IncidentBook& incidents, HangSuspicion& suspicion, const HangDetector& hang,
                      int64_t unix_ns);

// Describes why the suspect implicates its node: its process is blocked in the kernel or stopped.
// Empty if the suspect does not implicate the node.
std::string stuck_node_text(const Suspect& suspect, const Dump& dump);

}  // namespace muster::coordinator
