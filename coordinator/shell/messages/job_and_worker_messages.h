// Converts between wire messages of jobs and workers and the core's values. The core checks bounds
// and meanings. These functions sanitise only values that would break arithmetic (an age beyond the
// clock, a non-finite rate).
#pragma once

#include <cstddef>

#include "common/time/time.h"
#include "coordinator/core/core.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

WorkerRegistered registration_from_proto(const v1::Register& proto);
WorkerLeaving leaving_from_proto(const v1::Leaving& proto);
HeartbeatReceived heartbeat_from_proto(const v1::Heartbeat& proto);
RankExited exit_from_proto(const v1::RankExited& proto);

// The maximum number of ranks in one message.
constexpr size_t kRanksPageMax = 4'096;
// The maximum bytes of the ranks in one message, because names of workers and hosts may be long.
// A job with the largest spec (InputLimits::spec_bytes_max), the reserved workers and the faults is
// smaller than 4 MiB, the limit of clients.
constexpr size_t kRanksBytesMax = size_t{1} << 20;
// The maximum bytes of the names of reserved workers in one message.
constexpr size_t kHeldBytesMax = size_t{1} << 17;

// Converts a job for clients, with the ranks of one page from `first_rank` on: at most `ranks_max`,
// kRanksPageMax and about kRanksBytesMax. Replaces environment values by "***". `now`: the present
// time, from which ages and the current goodput are computed.
v1::Job job_to_proto(const Core& core, const Job& job, Instant now, size_t first_rank = 0,
                     size_t ranks_max = kRanksPageMax);
// Converts a job for a list: without the config and the environment, and with the figures of rank 0
// only.
v1::Job job_summary_to_proto(const Core& core, const Job& job, Instant now);
// The resources of a worker that are in use.
struct WorkerUse {
  int32_t slots = 0;
  int32_t slots_held = 0;  // the part of `slots` that is reserved and has no ranks
  int32_t gpus = 0;
};
// Converts a worker for clients. `node`: the suspicion record of the worker's node; null if there
// is none.
v1::WorkerInfo worker_to_proto(const Worker& worker, const NodeRecord* node, const WorkerUse& use,
                               Instant now);
// Converts a payload. Leaves out the spec of an order to start ranks: PayloadBytes appends it.
v1::CoordinatorMessage message_to_proto(const WorkerPayload& payload, Epoch epoch);
// Returns a message that has only the spec of an order to start ranks.
v1::CoordinatorMessage spec_to_proto(const JobSpec& spec);

}  // namespace muster::coordinator
