// A job that may hang: what its suspicion has seen so far, and what a dump of its stacks comes to.
//
// Verdicts on the two samples of a dump:
//
//   progress                     RUNNING, with more patience
//   a rank in a phase that may   RUNNING
//   last
//   a rank that waits for no     RUNNING: the job is slow, and is sampled again after twice the time
//   peer has moved elsewhere
//   inconclusive                 SUSPECT: an incident records at once what is known, and the job runs
//                                while it is sampled again, for as long again as it was given before,
//                                and for HangBudgets::unsure at least
//   stuck, or inconclusive for   the evidence is stored before anything is stopped
//   so long, or silent for
//   longer than its owner allows
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/blame/blame.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/hang/dump.h"
#include "coordinator/core/hang/hang_detector.h"
#include "coordinator/core/incident/incidents.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/step_time.h"

namespace muster::coordinator {

// The evidence does not show whether the attempt hangs: an incident records that, and the job runs.
// One incident for all inconclusive dumps of an attempt.
struct InconclusiveHang {
  IncidentId incident;
  bool open = false;
  // The last step or phase when it began.
  Instant progress{};
  // The first inconclusive dump.
  Instant began{};
  // Then the job counts as stuck. Unset: it has moved since.
  std::optional<Instant> until;
  // Why nothing is done.
  std::string reason;
};

struct HangSuspicion {
  // When the newest suspicion began.
  Instant suspected{};
  // When the stacks of its first verdict were there. Outlives the suspicion.
  Instant evidence{};
  // The last step or phase, and the newest known step, at that time.
  Instant progress_then{};
  int64_t step_then = -1;
  // Workers whose pages have not been received since.
  std::set<WorkerName> pages_awaited;
  std::optional<DumpId> dump;
  // Dumps of this suspicion that some worker did not answer in time.
  int32_t late_dumps = 0;
  // No dump before.
  std::optional<Instant> next_dump;
  // Outlives the suspicion.
  std::optional<InconclusiveHang> inconclusive;

  void begin(const HangDetector& hang, Instant now);
  // The suspicion is over, or the job is not waited for.
  void end();
  // The coordinator stood still for `time`.
  void excuse(Duration time);
};

// kUnseen: of some rank one sample is missing, and its worker may still answer.
enum class Verdict { kProgress, kExcused, kPeerLost, kSlow, kUnseen, kInconclusive, kStuck };
// `peer_lost`: a rank has reported the loss of a peer. `confirmed`: the loss of the workers that
// are unreachable, if there are any, could be confirmed. Changes the patience of `hang`.
Verdict verdict_of(const Dump& dump, const std::map<Rank, std::string>& gone,
                   const HangSuspicion& suspicion, HangDetector& hang, bool peer_lost,
                   bool confirmed, Instant now);

// Why nothing can be read of some ranks: they have ended, or are on a worker of `unreachable`.
std::map<Rank, std::string> ranks_gone(const Job& job, const std::set<WorkerName>& unreachable);

// Writes what blame concludes from the dump into `incident`, or into a new one. Returns the blame;
// the incident's symbols are the caller's to await.
Blame record_verdict(IncidentBook& incidents, const Job& job, const Dump& dump,
                     const BlameInput& input, IncidentKind kind, HangSuspicion& suspicion,
                     const HangDetector& hang, std::optional<IncidentId>& incident,
                     const StepTime& time);

// How long an inconclusive hang is sampled again, at least.
Duration inconclusive_time(const Job& job, const HangDetector& hang, const CoreOptions& options);
// Opens the attempt's inconclusive hang in its incident, which blame has filled: the job is sampled
// again for `time`.
InconclusiveHang open_inconclusive(IncidentBook& incidents, IncidentId incident,
                                   const Blame& blamed, const HangDetector& hang, Duration time,
                                   Instant now);
// An open one was over its time. False: the job counts as stuck. If it moved meanwhile, if only for
// a while, it gets the time anew, as long as any job that moves gets more.
bool renew_inconclusive(InconclusiveHang& inconclusive, HangDetector& hang, Instant now);
// Closes the incident of an open inconclusive hang, if there is one.
void close_inconclusive(IncidentBook& incidents, HangSuspicion& suspicion, std::string_view action,
                        std::string text, int64_t unix_ns);
// The same when steps or phases went on.
void close_if_it_went_on(IncidentBook& incidents, HangSuspicion& suspicion,
                         const HangDetector& hang, int64_t unix_ns);

// A rank that waits in the kernel or is stopped implicates its node. Empty: `suspect` is none.
std::string stuck_node_text(const Suspect& suspect, const Dump& dump);

}  // namespace muster::coordinator
