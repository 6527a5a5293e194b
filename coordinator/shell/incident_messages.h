// Incidents, dumps of stacks and their parts between the wire's messages and the core's values. Of incidents the message is the
// stored record, too.
#pragma once

#include <absl/status/statusor.h>

#include "coordinator/core/action.h"
#include "coordinator/core/event.h"
#include "coordinator/core/records/incident.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

// InvalidArgument says what is no tree in it; ranks, text and numbers are bounded, whether they belong to the dump is the core's affair.
absl::StatusOr<StackReportReceived> stack_report_from_proto(const v1::StackReport& proto);
SymbolsReceived symbols_from_proto(const v1::Symbols& proto);

// A record's bound: a thousand of them are stored (kIncidentsKeptMax), and each is sent in one message.
constexpr size_t kIncidentBytesMax = 1 << 20;

// At most so many bytes: evidence and stacks are cut as daemon/evidence_messages.h says.
v1::Incident incident_to_proto(const Incident& incident);
// What a list shows: without ranks, stacks and kernel messages.
v1::Incident incident_summary_to_proto(const Incident& incident);
// InvalidArgument says what is wrong with the record.
absl::StatusOr<Incident> incident_from_proto(const v1::Incident& proto);

v1::DumpJobStacksResponse dump_to_proto(const StackDump& dump);

void dump_request_to_proto(const SendDumpStacks& payload, v1::DumpStacks& proto);
void symbolize_to_proto(const SendSymbolize& payload, v1::Symbolize& proto);

}  // namespace muster::coordinator
