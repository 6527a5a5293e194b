// Bounds that several programs apply to the same value. Bounds of the daemons' messages and queues
// are in daemon/limits.h; bounds that only the coordinator enforces are in common/job_spec.h (plain
// fields of a job) and coordinator/core/queue/input_limits.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

// MaxText run names become folder names and metric labels; worker names become metric labels.
constexpr size_t kNameBytesMax = 128;
// The resolved config of one job; base.yml resolves to about 4 KiB.
constexpr size_t kTrainConfigBytesMax = 1 << 20;
// Above the size of any shell's environment.
constexpr size_t kEnvironmentEntriesMax = 1024;
// A program with its arguments. 512 KiB is a quarter of Linux's limit for arguments and environment
// together.
constexpr size_t kCommandWordsMax = 8192;
constexpr size_t kCommandBytesMax = 512 << 10;
// Above the number of devices or cores of any node; a larger value is a typing error.
constexpr int32_t kRanksPerNodeMax = 1024;
// The largest integer range that JSON readers represent exactly; no training reaches it. Pages and
// messages from outside may hold any value.
constexpr int64_t kStepMax = int64_t{1} << 53;
// Factor on the heartbeat frequency of a worker that has ranks. One second is too coarse for steps
// that are shorter; an idle node has nothing to report.
constexpr int32_t kBusyHeartbeats = 4;
// Maximum silence of a program: one week. A longer one is a typing error.
constexpr int64_t kHangAfterSecondsMax = 604'800;
// Above the largest known fleets.
constexpr int32_t kNodesMax = 10'000;
// Maximum number of restarts that a job may request.
constexpr int32_t kRestartsMax = 100'000;

// Maximum number of smaller sizes on which a job may resume after a fault. Each is a complete
// config; 16 allow the largest jobs to lose several nodes.
constexpr int32_t kSmallerSizesMax = 16;

}  // namespace muster
