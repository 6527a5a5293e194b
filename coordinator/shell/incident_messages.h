// Converts incidents, dumps of stacks and their parts between wire messages and the core's values.
// The message of an incident is also its stored record.
#pragma once

#include <absl/status/statusor.h>

#include "coordinator/core/action.h"
#include "coordinator/core/event.h"
#include "coordinator/core/records/incident.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

// Returns InvalidArgument with the reason if the stacks are no tree. Bounds ranks, text and
// numbers; the core checks whether they belong to the dump.
absl::StatusOr<StackReportReceived> stack_report_from_proto(const v1::StackReport& proto);
SymbolsReceived symbols_from_proto(const v1::Symbols& proto);

// Bound of a record: a thousand are stored (kIncidentsKeptMax), and each is sent in one message.
constexpr size_t kIncidentBytesMax = 1 << 20;

// Limits the message to kIncidentBytesMax: evidence and stacks are cut as
// daemon/evidence_messages.h describes.
v1::Incident incident_to_proto(const Incident& incident);
// For lists: without ranks, stacks and kernel messages.
v1::Incident incident_summary_to_proto(const Incident& incident);
// Returns InvalidArgument with what is wrong with the record.
absl::StatusOr<Incident> incident_from_proto(const v1::Incident& proto);

v1::DumpJobStacksResponse dump_to_proto(const StackDump& dump);

void dump_request_to_proto(const SendDumpStacks& payload, v1::DumpStacks& proto);
void symbolize_to_proto(const SendSymbolize& payload, v1::Symbolize& proto);

}  // namespace muster::coordinator
