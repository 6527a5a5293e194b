// Converts incidents, dumps of stacks and their parts between wire messages and the core's values.
// The message of an incident is also its stored record.
#pragma once

#include <absl/status/statusor.h>

#include "coordinator/core/action.h"
#include "coordinator/core/event.h"
#include "coordinator/core/records/incident.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

// Converts a worker's stack report. Returns InvalidArgument with the reason if the stacks are not a
// tree. Bounds ranks, texts and numbers; the core checks whether they belong to the dump.
absl::StatusOr<StackReportReceived> stack_report_from_proto(const v1::StackReport& proto);
SymbolsReceived symbol_report_from_proto(const v1::Symbols& proto);

// The maximum size of an incident's record. A thousand records are stored (kIncidentsKeptMax), and
// each is sent in one message.
constexpr size_t kIncidentBytesMax = 1 << 20;

// Converts an incident to a message of at most kIncidentBytesMax. Evidence and stacks are cut as
// described in daemon/evidence_messages.h.
v1::Incident incident_to_proto(const Incident& incident);
// Converts an incident for a list: without ranks, stacks and kernel messages.
v1::Incident incident_summary_to_proto(const Incident& incident);
// Returns InvalidArgument, with the reason, if the record is not valid.
absl::StatusOr<Incident> incident_from_proto(const v1::Incident& proto);

v1::DumpJobStacksResponse dump_to_proto(const JobStackDump& dump);

void dump_request_to_proto(const SendDumpStacks& payload, v1::DumpStacks& proto);
void symbolize_to_proto(const SendSymbolize& payload, v1::Symbolize& proto);

}  // namespace muster::coordinator
