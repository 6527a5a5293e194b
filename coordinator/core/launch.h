// What the core knows of a live job beyond its record: volatile, and rebuilt after a restart. Values; the files of core.h's list change them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/accounting/recovery_times.h"
#include "coordinator/core/action.h"
#include "coordinator/core/blame/blame.h"
#include "coordinator/core/event.h"
#include "coordinator/core/hang/dump.h"
#include "coordinator/core/hang/hang_detector.h"
#include "coordinator/core/hang/stragglers.h"
#include "coordinator/core/incident/crash_evidence.h"
#include "coordinator/core/records/incident.h"

namespace muster::coordinator {

// Nobody can tell whether the attempt hangs: an incident says so, and the job runs. One incident for all doubts of an attempt.
struct Doubt {
  IncidentId incident;
  bool open = false;
  Instant progress{};            // of steps and phases, when it began
  Instant began{};               // the look that could not tell
  std::optional<Instant> until;  // then it is stuck; nothing: it has moved since
  std::string reason;            // why nothing is done

  void excuse(Duration time) {
    progress += time;
    began += time;
    if (until) *until += time;
  }
};
// What is known of a live job beyond its record.
struct Launch {
  Instant started{};                   // as far as this life of the coordinator knows
  std::optional<Instant> roomy_since;  // there are nodes for `larger` nodes in all
  int32_t larger = 0;
  std::optional<Instant> start_deadline;          // while STARTING
  std::optional<Instant> victim_deadline;         // once a victim reported and no culprit did
  std::optional<Instant> killed_at;               // SIGKILL at the latest, once told to stop
  Instant stuck_look{};                           // … and the next look at who is there
  std::optional<int64_t> checkpoint_after;        // somebody waits for a checkpoint of more steps
  std::map<WorkerName, std::vector<Rank>> ranks;  // by worker
  std::optional<HangDetector> hang;
  std::optional<Stragglers> stragglers;
  std::optional<AttemptWatch> attempt;
  std::map<Rank, IncidentId> slow;     // ranks that are told to be
  std::optional<Instant> reach_check;  // the next look at whether its workers can be reached
  std::optional<IncidentId> incident;  // what the suspicion or the verdict is recorded as
  CrashEvidence crash;
  std::optional<IncidentId> silence;          // the attempt's, of workers that could not be reached
  std::vector<IncidentMoment> told_silences;  // of those that are no incident yet
  // While SUSPECT or DUMPING.
  Instant suspected{};
  Instant evidence{};            // the stacks of its first verdict were there; outlives a suspicion
  Instant progress_then{};       // of steps and phases
  int64_t step_then = -1;        // the newest that was known
  std::set<WorkerName> no_news;  // workers whose pages have not been seen since
  std::set<WorkerName> unreachable;  // outlives a suspicion
  std::optional<DumpId> dump;
  int32_t looks = 0;                 // dumps of this suspicion that could not tell
  std::optional<Instant> next_look;  // no dump before
  std::optional<Doubt> doubt;        // outlives a suspicion
};
// How often a dump looks, and how long each look may take.
struct Looks {
  int32_t samples = 1;
  Duration deadline{};
};
// One dump on its way.
struct OpenDump {
  Dump dump;
  Instant deadline;
  std::optional<RequestToken> request;  // who asked; nobody: the ladder
};
// Names that are awaited, for an incident or for somebody who wants to see stacks.
struct OpenSymbols {
  IncidentId incident;  // whose stacks are input.later's …
  BlameInput input;
  std::optional<RequestToken> request;  // … or whose answer waits
  StackDump answer;
  std::set<StackModule> modules;
  Instant deadline;

  StackTree& stacks() { return request ? answer.stacks : input.later.stacks; }
};

}  // namespace muster::coordinator
