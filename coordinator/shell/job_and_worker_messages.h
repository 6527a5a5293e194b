// Converts between wire messages of jobs and workers and the core's values. The core checks bounds
// and meanings; only values that would break arithmetic (an age beyond the clock, a non-finite
// rate) are sanitised here.
#pragma once

#include "common/time.h"
#include "coordinator/core/core.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

WorkerRegistered registration_from_proto(const v1::Register& proto);
WorkerLeaving leaving_from_proto(const v1::Leaving& proto);
HeartbeatReceived heartbeat_from_proto(const v1::Heartbeat& proto);
RankExited exit_from_proto(const v1::RankExited& proto);

// For clients: environment values are replaced by "***". `now` turns instants into ages and dates
// the goodput.
v1::Job job_to_proto(const Core& core, const Job& job, Instant now);
// For lists: without the config, the environment and the figures of all ranks except rank 0.
v1::Job job_summary_to_proto(const Core& core, const Job& job, Instant now);
// The used resources of a worker.
struct WorkerUse {
  int32_t slots = 0;
  int32_t slots_held = 0;  // part of `slots` reserved without a rank
  int32_t gpus = 0;
};
// `node`: the suspicion record of the node; null: none.
v1::WorkerInfo worker_to_proto(const Worker& worker, const NodeRecord* node, const WorkerUse& use,
                               Instant now);
v1::CoordinatorMessage message_to_proto(const WorkerPayload& payload, Epoch epoch);

}  // namespace muster::coordinator
