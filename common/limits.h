// Bounds that several programs apply to the same thing. What only the messages and queues of the daemons need is in
// daemon/limits.h, what only the coordinator judges in coordinator/core/queue/validation.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

// MaxText run names become folder and metric label names, worker names labels of metrics.
constexpr size_t kNameBytesMax = 128;
// The resolved config of one job; base.yml resolves to about 4 KiB.
constexpr size_t kTrainConfigBytesMax = 1 << 20;
// More than any shell's own environment.
constexpr size_t kEnvironmentEntriesMax = 1024;
// A program with its arguments: a quarter of what Linux takes for arguments and environment together.
constexpr size_t kCommandWordsMax = 8192;
constexpr size_t kCommandBytesMax = 512 << 10;
// More ranks than any node has devices or cores for; a larger number is a typing error.
constexpr int32_t kRanksPerNodeMax = 1024;
// Whole numbers that JSON's readers keep exactly, and no training reaches. Pages and messages may say anything.
constexpr int64_t kStepMax = int64_t{1} << 53;
// A worker with ranks heartbeats this many times as often as the coordinator asks for: a second is long where a step takes less, and an
// idle node has nothing to tell.
constexpr int32_t kBusyHeartbeats = 4;
// Silence of a program, at most a week: a longer one is a typing error.
constexpr int64_t kHangAfterSecondsMax = 604'800;
// The largest fleets that are spoken of.
constexpr int32_t kNodesMax = 10'000;

// Sizes on which a job may go on after a fault: each is a whole config. Of the largest there are enough to lose some nodes.
constexpr int32_t kSmallerSizesMax = 16;

}  // namespace muster
