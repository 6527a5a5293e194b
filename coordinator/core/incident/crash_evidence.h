// Evidence of an attempt that a fault has ended or is about to end: the last pages and output of
// the ranks that have ended, and the last reports of the other ranks. Bounded like the evidence of
// a hang. Pure; called on one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/job/rank_evidence.h"
#include "common/time/time.h"
#include "coordinator/core/records/incident.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

struct CrashEvidence {
  // The incident that records the ranks. Unset: there is no fault yet, or the evidence of the fault
  // is stacks.
  std::optional<IncidentId> incident;
  // The ranks that have ended; at most kIncidentRanksMax.
  std::map<Rank, RankEvidence> ended;
  std::vector<std::string> kernel_messages;  // "node1: [43579.126] …", without duplicates

  // Adds the evidence about `rank`, which has ended on `worker`.
  void add(Rank rank, const WorkerName& worker, const EndEvidence& left);
};

// Fills ranks and kernel_messages of an incident that `fault` has just opened. Order: the blamed
// rank, then ended ranks in the order of their reports, then the other ranks by ascending number of
// steps.
void take_crash_evidence(Incident& incident, const Job& job, const Fault& fault,
                         const CrashEvidence& crash, Instant now);

// Adds the evidence of ranks that had not ended when the incident was opened. Requires that the
// attempt has ended. Returns whether anything was added.
bool complete_crash_evidence(Incident& incident, const CrashEvidence& crash);

}  // namespace muster::coordinator
