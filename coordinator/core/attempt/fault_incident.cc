#include "coordinator/core/attempt/fault_incident.h"

#include <algorithm>

#include "coordinator/core/incident/recovery.h"

namespace muster::coordinator {

Instant record_fault(IncidentBook& incidents, LiveAttempt& attempt, Job& job, int64_t best_step,
                     const CoreTime& time) {
  const Fault& fault = job.faults.back();
  const Instant progress = attempt.progress.last_progress(job, time.now);
  const Incident* known = attempt.incident ? incidents.find(*attempt.incident) : nullptr;
  if (known == nullptr || known->kind != fault.kind) {
    attempt.incident =
        incidents.open(incident_of_fault(job, fault, fault.kind, time.unix_ns_of(progress)));
    attempt.crash.incident = attempt.incident;
    take_crash_evidence(*incidents.change(*attempt.incident), job, fault, attempt.crash, time.now);
  } else if (fault.kind != IncidentKind::kHang) {  // the verdict on a hang is already recorded
    incidents.note(*attempt.incident, time.unix_ns, fault.message);
  }
  Incident& incident = *incidents.change(*attempt.incident);
  const RestartDecision decision = decide_restart(job);
  incident.action = action_text(decision, fault);
  incident.diagnosis = diagnosis_text(decision, fault);

  end_recovery(incidents, job, *attempt.incident, attempt.progress.hang.is_silent());
  const bool suspected =
      fault.kind == IncidentKind::kHang || fault.kind == IncidentKind::kWorkerLost;
  const HangSuspicion& suspicion = attempt.ladder.suspicion();
  const Instant detected =
      suspected && suspicion.suspected > progress ? suspicion.suspected : time.now;
  // A hang that was sampled repeatedly has had evidence since the first sample.
  const Instant evidence =
      suspected && suspicion.evidence > detected ? suspicion.evidence : time.now;
  begin_recovery(incidents, job, *attempt.incident,
                 {time.unix_ns_of(progress), time.unix_ns_of(detected), time.unix_ns_of(evidence),
                  time.unix_ns},
                 std::max(best_step, fault.last_step));
  return progress;
}

void revise_action(IncidentBook& incidents, const LiveAttempt& attempt,
                   const RestartDecision& decision, const Fault& fault, int64_t unix_ns) {
  const Incident* known = attempt.incident ? incidents.find(*attempt.incident) : nullptr;
  const std::string diagnosis = diagnosis_text(decision, fault);
  if (known == nullptr || (diagnosis.empty() && !decision.takes_update) ||
      (known->diagnosis == diagnosis && known->action == action_text(decision, fault)))
    return;
  incidents.note(*attempt.incident, unix_ns, decision.reason);
  Incident& incident = *incidents.change(*attempt.incident);
  incident.action = action_text(decision, fault);
  incident.diagnosis = diagnosis;
}

}  // namespace muster::coordinator
