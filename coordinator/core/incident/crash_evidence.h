// The evidence of an attempt that a fault has ended, or is about to end: what its ranks left behind
// as they ended, and the last reports of the others. Bounded as the evidence of a hang is. Pure;
// one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/rank_evidence.h"
#include "common/time.h"
#include "coordinator/core/records/incident.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

struct CrashEvidence {
  std::optional<IncidentId>
      incident;  // whose ranks are recorded; nothing: no fault yet, or one that has stacks
  std::map<Rank, RankEvidence> ended;        // at most kIncidentRanksMax of those that have
  std::vector<std::string> kernel_messages;  // "node1: [43579.126] …", each once

  // Adds what `rank` on `worker` has left behind.
  void keep(Rank rank, const WorkerName& worker, const EndEvidence& left);
};

// Fills ranks and kernel_messages of an incident that `fault` has just opened: who is blamed first,
// then who has ended, as it was reported, then the others, those with the fewest steps first.
void take_crash_evidence(Incident& incident, const Job& job, const Fault& fault,
                         const CrashEvidence& crash, Instant now);

// The attempt is over: what those ranks of the incident have left that lived when it was opened.
// True: there is something new.
bool complete_crash_evidence(Incident& incident, const CrashEvidence& crash);

}  // namespace muster::coordinator
