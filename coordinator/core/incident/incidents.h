// The coordinator's book of incidents: numbers, what is open, what is still being learned of one,
// and how many are kept. And what a fault looks like as an incident. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/blame/blame.h"
#include "coordinator/core/incident/crash_evidence.h"
#include "coordinator/core/records/incident.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {

class IncidentBook {
 public:
  IncidentBook() = default;
  // As it is stored: all numbers, growing, and those that are open.
  IncidentBook(const std::vector<IncidentId>& stored, std::vector<Incident> open);

  // Gives it the next number. It will be stored.
  IncidentId open(Incident incident);
  // To be changed, and then stored. Null: it is closed, and nothing more is awaited.
  Incident* change(IncidentId id);
  const Incident* find(IncidentId id) const;
  // Adds what happened last. Unknown numbers are ignored.
  void note(IncidentId id, int64_t unix_ns, std::string text);
  void close(IncidentId id);
  // Those of the job that are open, oldest first.
  std::vector<IncidentId> open_of(JobId job) const;

  // Between these a closed incident may be changed, too: its symbols are awaited, or it may be
  // opened again. As often as the other.
  void await(IncidentId id) { awaited_.insert(id); }
  void settle(IncidentId id);

  // The changes since the last call, in the order of numbers, and the records dropped for them.
  struct Changes {
    std::vector<Incident> stored;
    std::vector<IncidentId> forgotten;
  };
  Changes take_changes();

 private:
  void forget_if_over(IncidentId id);

  std::set<IncidentId> stored_;
  IncidentId last_{0};
  std::map<IncidentId, Incident> incidents_;  // open or awaited
  std::multiset<IncidentId> awaited_;
  std::set<IncidentId> changed_;
};

// Returns the kind of this end, by exit code, signal, cause and (of programs that are not ours) the
// words of its last line.
IncidentKind kind_of_exit(const RankExit& exit);

// The incident that `fault` is, without evidence (crash_evidence.h). `last_progress_unix_ns`: 0
// when it is not known.
Incident incident_of_fault(const Job& job, const Fault& fault, IncidentKind kind,
                           int64_t last_progress_unix_ns);

// "restart 1 of 3", "the job fails: no restarts were allowed": the decision without its cause.
std::string action_text(const RestartDecision& decision, const Fault& fault);

// Completes the evidence of a crash in its incident, once, and not with each rank that ends: a
// record may be large.
void complete_crash(IncidentBook& incidents, const CrashEvidence& crash);

// Notes `text` in the job's open incidents and closes them.
void close_open_incidents(IncidentBook& incidents, JobId job, const std::string& text,
                          int64_t unix_ns);

// The evidence that an incident keeps: of suspects, and of one rank per stack class.
std::vector<RankEvidence> kept_evidence(const BlameInput& input, const Blame& blame);

// Puts sentence, suspects, stacks and evidence in.
void take_blame(Incident& incident, const BlameInput& input, const Blame& blame);

}  // namespace muster::coordinator
