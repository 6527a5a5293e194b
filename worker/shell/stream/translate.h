// Translates between the coordinator's protobuf messages and the core's values, and limits their
// sizes. Makes no decisions.
#pragma once

#include <absl/status/statusor.h>

#include "muster/v1/muster.pb.h"
#include "worker/core/action.h"
#include "worker/core/event.h"
#include "worker/shell/logs/log_shipper.h"

namespace muster::worker {

// Returns the event of a message. Returns InvalidArgument if the message is not an event (LogAck,
// an empty or unknown body) or exceeds a limit.
absl::StatusOr<Event> to_event(const v1::CoordinatorMessage& message);

// Return the message of an action.
v1::WorkerMessage to_message(const SendRegister& action);
v1::WorkerMessage to_message(const SendLeaving& action);
v1::WorkerMessage to_message(const SendHeartbeat& action);
v1::WorkerMessage to_message(const SendStackReport& action);
// If the symbols do not fit into a message, leaves out some symbols but not their addresses.
v1::WorkerMessage to_message(const SendSymbols& action);
v1::WorkerMessage to_message(const SendNodeChecked& action);
v1::WorkerMessage to_message(const SendRankExited& action);
v1::WorkerMessage to_message(LogChunk&& chunk);

// Returns the rank of a LogAck.
RankKey key_of(const v1::LogAck& ack);

}  // namespace muster::worker
