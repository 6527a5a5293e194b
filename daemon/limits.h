// Bounds of messages and queues between programs; see common/limits.h for those of jobs and names.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::daemon {

// A StartRanks carries a job's complete config (kTrainConfigBytesMax); 4 MiB is gRPC's default.
constexpr int kMessageBytesMax = 4 << 20;
// One log message of a worker: below the message bound with room to spare, big enough to be
// efficient.
constexpr size_t kLogChunkBytesMax = 64 << 10;
// A rank's stored log; a rank in an error loop must not fill the disk. Keeps older output and drops
// newer.
constexpr uint64_t kLogBytesPerRankMax = 256ULL << 20;
// Events waiting for the coordinator's core thread: a burst of one message from each of 10,000
// workers fits.
constexpr size_t kEventQueueMax = 65'536;
// Messages waiting to be written to one worker before it is considered stuck and dropped.
constexpr size_t kOutboxMax = 4'096;

}  // namespace muster::daemon
