// The one place that knows both the wire's messages and the core's values. Bounds and meanings are the core's affair; only
// numbers that no arithmetic bears (an age beyond the clock, a rate that is none) are made harmless here.
#pragma once

#include "common/time.h"
#include "coordinator/core/core.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

JobSpec spec_from_proto(const v1::JobSpec& proto);
WorkerRegistered registration_from_proto(const v1::Register& proto);
WorkerLeaving leaving_from_proto(const v1::Leaving& proto);
HeartbeatReceived heartbeat_from_proto(const v1::Heartbeat& proto);
RankExited exit_from_proto(const v1::RankExited& proto);

// For clients: the environment's values are "***". `now` turns instants into ages.
// Its goodput is as of `now`.
v1::Job job_to_proto(const Core& core, const Job& job, Instant now);
// For lists: without the config, the environment and the figures of all ranks but rank 0.
v1::Job job_summary_to_proto(const Core& core, const Job& job, Instant now);
// `node`: what is held against it; null: nothing. `slots_held` of `slots_used` have no rank.
v1::WorkerInfo worker_to_proto(const Worker& worker, const NodeRecord* node, int32_t slots_used,
                               int32_t slots_held, Instant now);
v1::CoordinatorMessage message_to_proto(const WorkerPayload& payload, Epoch epoch);

}  // namespace muster::coordinator
