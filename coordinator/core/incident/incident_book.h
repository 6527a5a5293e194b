// The coordinator's incidents. The book assigns numbers, retains the incidents that may still
// change, and bounds the number of stored incidents. Further functions convert faults to incidents.
// Pure; called on one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/ids.h"
#include "coordinator/core/blame/blame.h"
#include "coordinator/core/incident/crash_evidence.h"
#include "coordinator/core/records/incident.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {

class IncidentBook {
 public:
  IncidentBook() = default;
  // Restores the book. `stored`: the numbers of all stored incidents, ascending. `open`: the stored
  // incidents that are not finished.
  IncidentBook(const std::vector<IncidentId>& stored, std::vector<Incident> open);

  // Assigns the next number to `incident` and marks it to be stored. Returns the number.
  IncidentId open(Incident incident);
  // Returns the incident for a change and marks it to be stored. Returns null if the book no longer
  // retains the incident: it is closed, and nothing is awaited for it.
  Incident* change(IncidentId id);
  const Incident* find(IncidentId id) const;
  // Appends a moment to the incident. Ignores incidents that the book does not retain.
  void note(IncidentId id, int64_t unix_ns, std::string text);
  void close(IncidentId id);
  // Returns the open incidents of the job, oldest first.
  std::vector<IncidentId> open_of(JobId job) const;
  size_t open_count() const;

  // Retains an incident for changes after it is closed, for example until its symbols have arrived
  // or because it may be opened again. Requires one settle() for each await().
  void await(IncidentId id) { awaited_.insert(id); }
  void settle(IncidentId id);

  // The incidents to store, by number, and the records that were dropped in favour of newer ones.
  struct Changes {
    std::vector<Incident> stored;
    std::vector<IncidentId> forgotten;
  };
  // Returns the changes since the last call.
  Changes take_changes();

 private:
  void forget_if_over(IncidentId id);

  std::set<IncidentId> stored_;
  IncidentId last_{0};
  std::map<IncidentId, Incident> incidents_;  // open or awaited incidents
  std::multiset<IncidentId> awaited_;
  std::set<IncidentId> changed_;
};

// Classifies the end of a rank by exit code, signal, cause and, for user programs, the text of the
// last output line.
IncidentKind kind_of_exit(const RankExit& exit);

// Returns the incident for `fault`, without evidence (crash_evidence.h). `last_progress_unix_ns`: 0
// if the time is not known.
Incident incident_of_fault(const Job& job, const Fault& fault, IncidentKind kind,
                           int64_t last_progress_unix_ns);

// Describes the decision without its cause: "restart 1 of 3", "the job fails: no restarts were
// allowed".
std::string action_text(const RestartDecision& decision, const Fault& fault);
// Returns the value of Incident::diagnosis for a fault.
std::string diagnosis_text(const RestartDecision& decision, const Fault& fault);

// Completes the evidence of a crash in its incident. Called once for each attempt and not for each
// rank that ends, because a record may be large.
void complete_crash(IncidentBook& incidents, const CrashEvidence& crash);

// Notes `text` in the job's open incidents and closes them, except those of slow nodes whose effect
// is still to be measured (Job::slow_nodes).
void close_open_incidents(IncidentBook& incidents, const Job& job, const std::string& text,
                          int64_t unix_ns);

// Returns the evidence to store in an incident: the evidence of the suspects, and of one rank per
// stack class.
std::vector<RankEvidence> evidence_to_store(const BlameInput& input, const Blame& blame);

// Copies the sentence, suspects, stacks and evidence of a blame to the incident.
void take_blame(Incident& incident, const BlameInput& input, const Blame& blame);

}  // namespace muster::coordinator
