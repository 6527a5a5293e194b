#include "coordinator/shell/messages/incident_messages.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/job/limits.h"
#include "common/text/escape.h"
#include "coordinator/shell/messages/account_messages.h"
#include "daemon/evidence_messages.h"

namespace muster::coordinator {
namespace {

constexpr size_t kStoredTextBytesMax = 1'024;  // sentences, clauses and actions
constexpr size_t kWordBytesMax = 256;          // axes and collectives
constexpr size_t kSourceBytesMax = kFrameTextBytesMax + kModulePathBytesMax;

// The part of a record for evidence; the rest is for stacks.
constexpr size_t kRecordEvidenceBytesMax = kIncidentBytesMax / 2;
constexpr size_t kRecordReserveBytes = 64;  // tags and lengths

std::optional<IncidentKind> kind_from(const std::string& name) {
  const auto found = std::find(kIncidentKindNames.begin(), kIncidentKindNames.end(), name);
  if (found == kIncidentKindNames.end()) return std::nullopt;
  return static_cast<IncidentKind>(found - kIncidentKindNames.begin());
}

void suspect_to_proto(const Suspect& suspect, v1::Suspect& proto) {
  proto.set_rank(suspect.rank.value());
  proto.set_worker(printable(suspect.worker.value(), kNameBytesMax));
  proto.set_axis(printable(suspect.axis, kWordBytesMax));
  proto.set_collective(printable(suspect.collective, kWordBytesMax));
  proto.set_source(printable(suspect.source, kSourceBytesMax));
  proto.set_why(printable(suspect.why, kStoredTextBytesMax));
  proto.set_confidence(suspect.confidence);
}

Suspect suspect_from_proto(const v1::Suspect& proto) {
  return {.rank = Rank(std::max(proto.rank(), -1)),
          .worker = WorkerName(printable(proto.worker(), kNameBytesMax)),
          .axis = printable(proto.axis(), kWordBytesMax),
          .collective = printable(proto.collective(), kWordBytesMax),
          .source = printable(proto.source(), kSourceBytesMax),
          .why = printable(proto.why(), kStoredTextBytesMax),
          .confidence =
              std::isfinite(proto.confidence()) ? std::clamp(proto.confidence(), 0.0, 1.0) : 0.0};
}

}  // namespace

absl::StatusOr<StackReportReceived> stack_report_from_proto(const v1::StackReport& proto) {
  auto stacks = daemon::stack_tree_from_proto(proto.stacks());
  if (!stacks.ok()) return stacks.status();
  StackReportReceived event;
  event.dump = DumpId(proto.dump_id());
  event.job = JobId(proto.job_id());
  event.attempt = Attempt(proto.attempt());
  event.sample = proto.sample();
  event.stacks = *std::move(stacks);
  event.ranks = daemon::evidence_from_proto(proto.ranks(), kRanksPerNodeMax);
  event.kernel_messages =
      daemon::lines_from_proto(proto.kernel_messages(), kKernelMessagesMax, kEvidenceLineBytesMax);
  return event;
}

SymbolsReceived symbol_report_from_proto(const v1::Symbols& proto) {
  SymbolsReceived event;
  event.dump = DumpId(proto.dump_id());
  event.module = daemon::module_from_proto(proto.module());
  for (const v1::FrameSymbol& symbol : proto.symbols()) {
    if (event.symbols.size() == kStackTreeNodesMax) break;
    event.symbols.emplace_back(symbol.address(), daemon::symbol_from_proto(symbol));
  }
  return event;
}

v1::Incident incident_summary_to_proto(const Incident& incident) {
  v1::Incident proto;
  proto.set_id(incident.id.value());
  proto.set_job_id(incident.job.value());
  proto.set_attempt(incident.attempt.value());
  proto.set_job_name(incident.job_name);
  proto.set_owner(incident.owner.name);
  proto.set_team(incident.owner.team);
  proto.set_kind(std::string(kIncidentKindNames[static_cast<size_t>(incident.kind)]));
  proto.set_open(incident.open);
  proto.set_sentence(printable(incident.sentence, kStoredTextBytesMax));
  proto.set_diagnosis(printable(incident.diagnosis, kStoredTextBytesMax));
  for (const Suspect& suspect : incident.suspects) suspect_to_proto(suspect, *proto.add_suspects());
  proto.set_action(printable(incident.action, kStoredTextBytesMax));
  for (const IncidentMoment& moment : incident.moments) {
    v1::Incident::Moment& added = *proto.add_moments();
    added.set_unix_ns(moment.unix_ns);
    added.set_text(printable(moment.text, kStoredTextBytesMax));
  }
  if (incident.recovery) recovery_to_proto(*incident.recovery, *proto.mutable_recovery());
  return proto;
}

v1::Incident incident_to_proto(const Incident& incident) {
  v1::Incident proto = incident_summary_to_proto(incident);
  daemon::lines_to_proto(incident.kernel_messages, kKernelMessagesMax, kEvidenceLineBytesMax,
                         *proto.mutable_kernel_messages());
  daemon::evidence_to_proto(incident.ranks, kRecordEvidenceBytesMax, *proto.mutable_ranks());
  const size_t used = proto.ByteSizeLong() + kRecordReserveBytes;
  daemon::stack_tree_to_proto(incident.stacks,
                              used < kIncidentBytesMax ? kIncidentBytesMax - used : 0,
                              *proto.mutable_stacks());
  return proto;
}

absl::StatusOr<Incident> incident_from_proto(const v1::Incident& proto) {
  const auto kind = kind_from(proto.kind());
  if (!kind) {
    return absl::InvalidArgumentError(absl::StrCat("kind is \"", printable(proto.kind(), 32),
                                                   "\", which this version does not support"));
  }
  if (proto.id() == 0) return absl::InvalidArgumentError("id is missing");
  auto stacks = daemon::stack_tree_from_proto(proto.stacks());
  if (!stacks.ok()) return stacks.status();
  Incident incident;
  incident.id = IncidentId(proto.id());
  incident.job = JobId(proto.job_id());
  incident.attempt = Attempt(proto.attempt());
  incident.job_name = printable(proto.job_name(), kNameBytesMax);
  incident.owner = {printable(proto.owner(), kNameBytesMax),
                    printable(proto.team(), kNameBytesMax)};
  incident.kind = *kind;
  incident.open = proto.open();
  incident.sentence = printable(proto.sentence(), kStoredTextBytesMax);
  incident.diagnosis = printable(proto.diagnosis(), kStoredTextBytesMax);
  for (const v1::Suspect& suspect : proto.suspects()) {
    if (incident.suspects.size() == kSuspectsMax) break;
    incident.suspects.push_back(suspect_from_proto(suspect));
  }
  incident.ranks = daemon::evidence_from_proto(proto.ranks(), kIncidentRanksMax);
  incident.stacks = *std::move(stacks);
  incident.kernel_messages =
      daemon::lines_from_proto(proto.kernel_messages(), kKernelMessagesMax, kEvidenceLineBytesMax);
  incident.action = printable(proto.action(), kStoredTextBytesMax);
  for (const v1::Incident::Moment& moment : proto.moments()) {
    if (incident.moments.size() == kIncidentMomentsMax) break;
    incident.moments.push_back({moment.unix_ns(), printable(moment.text(), kStoredTextBytesMax)});
  }
  if (proto.has_recovery()) incident.recovery = recovery_from_proto(proto.recovery());
  return incident;
}

v1::DumpJobStacksResponse dump_to_proto(const JobStackDump& dump) {
  v1::DumpJobStacksResponse proto;
  proto.set_job_id(dump.job.value());
  proto.set_attempt(dump.attempt.value());
  for (const WorkerName& worker : dump.silent)
    proto.add_silent_workers(printable(worker.value(), kNameBytesMax));
  daemon::evidence_to_proto(dump.ranks, daemon::kEvidenceBytesMax, *proto.mutable_ranks());
  daemon::stack_tree_to_proto(dump.stacks, daemon::kStackTreeBytesMax, *proto.mutable_stacks());
  return proto;
}

void dump_request_to_proto(const SendDumpStacks& payload, v1::DumpStacks& proto) {
  proto.set_job_id(payload.job.value());
  proto.set_attempt(payload.attempt.value());
  proto.set_dump_id(payload.dump.value());
  proto.set_samples(payload.samples);
  proto.set_apart_ms(payload.apart / std::chrono::milliseconds(1));
  proto.set_deadline_ms(payload.deadline / std::chrono::milliseconds(1));
  for (const Rank rank : payload.ranks) proto.add_ranks(rank.value());
}

void symbolize_to_proto(const SendSymbolize& payload, v1::Symbolize& proto) {
  proto.set_job_id(payload.job.value());
  proto.set_attempt(payload.attempt.value());
  proto.set_dump_id(payload.dump.value());
  daemon::module_to_proto(payload.module, *proto.mutable_module());
  proto.mutable_addresses()->Add(payload.addresses.begin(), payload.addresses.end());
}

}  // namespace muster::coordinator
