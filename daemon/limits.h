// Bounds of messages and queues between programs. The bounds of jobs and names are in
// common/job/limits.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::daemon {

// The maximum size of a message. A StartRanks contains a job's complete config
// (kTrainConfigBytesMax); 4 MiB is gRPC's default.
constexpr int kMessageBytesMax = 4 << 20;
// The maximum data in one log message of a worker: well below the bound of a message, and large
// enough to be efficient.
constexpr size_t kLogChunkBytesMax = 64 << 10;
// The maximum size of a rank's stored log, because a rank in an error loop must not fill the disk.
// Later output is dropped.
constexpr uint64_t kLogBytesPerRankMax = 256ULL << 20;
// The maximum number of events that wait for the coordinator's core thread. The ends of 100,000
// ranks in one burst fit, beside several messages of each worker. Heartbeats occupy at most one
// place for each worker.
constexpr size_t kEventQueueMax = 262'144;
// The maximum number of messages that wait to be written to one worker. Beyond it, the worker
// counts as stuck and its stream is ended.
constexpr size_t kOutboxMax = 4'096;

// The trailing metadata of a refused call with the milliseconds after which to repeat it (gRFC A6).
constexpr char kRetryHint[] = "grpc-retry-pushback-ms";

}  // namespace muster::daemon
