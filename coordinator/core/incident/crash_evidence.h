// Evidence of an attempt that a fault has ended or is about to end: the files that its ranks left
// behind, and the last reports of the others. Bounded like the evidence of a hang. Pure; called on
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
  // The incident that records the ranks. Unset: no fault yet, or a fault whose evidence is stacks.
  std::optional<IncidentId> incident;
  // The ranks that have ended; at most kIncidentRanksMax.
  std::map<Rank, RankEvidence> ended;
  std::vector<std::string> kernel_messages;  // "node1: [43579.126] …", without duplicates

  // Adds the evidence that `rank` on `worker` left behind.
  void keep(Rank rank, const WorkerName& worker, const EndEvidence& left);
};

// Fills ranks and kernel_messages of an incident that `fault` has just opened. Order: the blamed
// rank, then ended ranks in the order of their reports, then the others, those with the fewest
// steps first.
void take_crash_evidence(Incident& incident, const Job& job, const Fault& fault,
                         const CrashEvidence& crash, Instant now);

// Adds the evidence of ranks that were alive when the incident was opened. Requires that the
// attempt has ended. Returns whether anything was added.
bool complete_crash_evidence(Incident& incident, const CrashEvidence& crash);

}  // namespace muster::coordinator
