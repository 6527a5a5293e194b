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
// What is taken of a worker.
struct WorkerUse {
  int32_t slots = 0;
  int32_t slots_held = 0;  // of these: they have no rank
  int32_t gpus = 0;
};
// `node`: what is held against it; null: nothing.
v1::WorkerInfo worker_to_proto(const Worker& worker, const NodeRecord* node, const WorkerUse& use,
                               Instant now);
v1::CoordinatorMessage message_to_proto(const WorkerPayload& payload, Epoch epoch);

}  // namespace muster::coordinator
