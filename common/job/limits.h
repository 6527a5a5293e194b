// Bounds that several programs apply to the same value. Bounds of the daemons' messages and queues
// are in daemon/limits.h; bounds that only the coordinator enforces are in common/job/job_spec.h
// (plain fields of a job) and coordinator/core/queue/input_limits.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

// The maximum size of a name. Run names become folder names and metric labels; worker names become
// metric labels.
constexpr size_t kNameBytesMax = 128;
// The maximum size of a job's resolved config; base.yml resolves to about 4 KiB.
constexpr size_t kTrainConfigBytesMax = 1 << 20;
// The maximum number of environment variables, above that of any shell.
constexpr size_t kEnvironmentEntriesMax = 1024;
// Bounds of a program with its arguments. 512 KiB is a quarter of Linux's limit for arguments and
// environment together.
constexpr size_t kCommandWordsMax = 8192;
constexpr size_t kCommandBytesMax = 512 << 10;
// The maximum number of ranks per node, above the number of devices or cores of any node; a larger
// value is a typing error.
constexpr int32_t kRanksPerNodeMax = 1024;
// The maximum step number: JSON readers represent integers up to this value exactly, and no
// training reaches it. Pages and messages from outside may contain any value.
constexpr int64_t kStepMax = int64_t{1} << 53;
// The factor on the heartbeat frequency of a worker that has ranks, because an interval of one
// second is too long for shorter steps. An idle node has nothing to report.
constexpr int32_t kBusyHeartbeats = 4;
// The maximum permitted silence of a program: one week. A longer silence is a typing error.
constexpr int64_t kHangAfterSecondsMax = 604'800;
// The maximum number of nodes, above the size of the largest known fleets.
constexpr int32_t kNodesMax = 100'000;
// The maximum number of restarts that a job may request.
constexpr int32_t kRestartsMax = 100'000;

// The maximum number of smaller sizes of a job, on which it may resume after a fault. Each size has
// a complete config; with 16 sizes the largest jobs can lose several nodes.
constexpr int32_t kSmallerSizesMax = 16;

// The maximum number of other jobs that must end before a job starts.
constexpr size_t kDependenciesMax = 64;

}  // namespace muster
