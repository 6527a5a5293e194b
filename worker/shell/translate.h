// Between the wire's messages and the core's values. Translates and bounds; decides nothing.
#pragma once

#include <absl/status/statusor.h>

#include "muster/v1/muster.pb.h"
#include "worker/core/action.h"
#include "worker/core/event.h"
#include "worker/shell/log_shipper.h"

namespace muster::worker {

// InvalidArgument for a message that is no event (LogAck, an empty or unknown body) or is out of bounds.
absl::StatusOr<Event> to_event(const v1::CoordinatorMessage& message);

v1::WorkerMessage to_message(const SendRegister& action);
v1::WorkerMessage to_message(const SendLeaving& action);
v1::WorkerMessage to_message(const SendHeartbeat& action);
v1::WorkerMessage to_message(const SendStackReport& action);
// Names that have no room in a message are left out, their addresses are not.
v1::WorkerMessage to_message(const SendSymbols& action);
v1::WorkerMessage to_message(const SendNodeChecked& action);
v1::WorkerMessage to_message(const SendRankExited& action);
v1::WorkerMessage to_message(LogChunk&& chunk);

// The rank that a LogAck is about.
RankKey key_of(const v1::LogAck& ack);

}  // namespace muster::worker
