#include "daemon/json/incident_json.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_replace.h>

#include "common/text/absl_view.h"
#include "daemon/evidence_messages.h"
#include "daemon/json/stack_json.h"

namespace muster::daemon {
namespace {

using nlohmann::json;

constexpr size_t kRanksShownMax = 1'024;  // ranks whose evidence is read; an incident has fewer

json suspect_to_json(const v1::Suspect& suspect) {
  return {{"rank", suspect.rank()},
          {"worker", suspect.worker()},
          {"axis", suspect.axis()},
          {"collective", suspect.collective()},
          {"source", suspect.source()},
          {"why", suspect.why()},
          {"confidence", suspect.confidence()}};
}

}  // namespace

absl::StatusOr<IncidentEvidence> evidence_of(const v1::Incident& incident) {
  auto stacks = stack_tree_from_proto(incident.stacks());
  if (!stacks.ok()) return stacks.status();
  return IncidentEvidence{
      *std::move(stacks), evidence_from_proto(incident.ranks(), kRanksShownMax),
      lines_from_proto(incident.kernel_messages(), kKernelMessagesMax, kEvidenceLineBytesMax)};
}

std::array<RecoveryMoment, 10> moments_of(const v1::Recovery& recovery) {
  return {{{"last progress", recovery.progress_unix_ns()},
           {"detected", recovery.detected_unix_ns()},
           {"evidence", recovery.evidence_unix_ns()},
           {"decided", recovery.decided_unix_ns()},
           {"stopped", recovery.stopped_unix_ns()},
           {"started", recovery.started_unix_ns()},
           {"up", recovery.up_unix_ns()},
           {"loaded", recovery.loaded_unix_ns()},
           {"first step", recovery.first_step_unix_ns()},
           {"caught up", recovery.caught_up_unix_ns()}}};
}

int64_t steps_lost(const v1::Recovery& recovery) {
  if (recovery.best_step() < 0 || recovery.restored_step() < 0) return -1;
  return std::max<int64_t>(recovery.best_step() - recovery.restored_step(), 0);
}

json recovery_to_json(const v1::Incident& incident) {
  if (!incident.has_recovery()) return nullptr;
  const v1::Recovery& recovery = incident.recovery();
  json out = {{"over", recovery.over()},
              {"attempts", recovery.attempts()},
              {"best_step", recovery.best_step()},
              {"restored_step", recovery.restored_step()},
              {"steps_lost", steps_lost(recovery)},
              {"interrupted_by", recovery.interrupted_by()}};
  for (const RecoveryMoment& moment : moments_of(recovery)) {
    if (moment.unix_ns == 0) continue;
    const std::string name = absl::StrReplaceAll(av(moment.name), {{" ", "_"}});
    out[name + "_unix_ns"] = moment.unix_ns;
  }
  return out;
}

absl::StatusOr<json> incident_to_json(const v1::Incident& incident) {
  const auto evidence = evidence_of(incident);
  if (!evidence.ok()) return evidence.status();
  json out = {{"id", incident.id()},
              {"job", incident.job_id()},
              {"attempt", incident.attempt()},
              {"job_name", incident.job_name()},
              {"kind", incident.kind()},
              {"open", incident.open()},
              {"sentence", incident.sentence()},
              {"diagnosis", incident.diagnosis()},
              {"action", incident.action()},
              {"suspects", json::array()},
              {"moments", json::array()}};
  for (const v1::Suspect& suspect : incident.suspects())
    out["suspects"].push_back(suspect_to_json(suspect));
  for (const v1::Incident::Moment& moment : incident.moments())
    out["moments"].push_back({{"unix_ns", moment.unix_ns()}, {"text", moment.text()}});
  out["recovery"] = recovery_to_json(incident);
  // an entry of a list
  if (incident.ranks_size() == 0 && incident.stacks().nodes_size() == 0) return out;
  out["ranks"] = json::array();
  for (const RankEvidence& rank : evidence->ranks) out["ranks"].push_back(evidence_to_json(rank));
  out["stacks"] = stacks_to_json(evidence->stacks);
  out["kernel_messages"] = evidence->kernel_messages;
  return out;
}

}  // namespace muster::daemon
