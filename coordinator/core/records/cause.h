// The causes that may end an attempt, and their consequences: one table. Values without behaviour.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "common/time.h"

namespace muster::coordinator {

// Durable by name (kCauseRules): a new one goes anywhere, an old one keeps its name.
enum class Cause {
  kRankDied,
  kWorkerLost,
  kHang,
  kOutOfMemory,
  kDiskFull,
  kNotStarted,
  kUnfitNode,
  kPreempted,
  kNotFinite,
  kBadInput,
  kNotExecutable,
  kGpuFault,
};
constexpr size_t kCauses = 12;

// The weight of a fault against its node.
enum class NodeBlame {
  kNothing,
  kCounts,  // the second within an hour leaves the node out
  kAtOnce,  // this one does
};

struct CauseRule {
  std::string_view name;
  bool retries = true;
  // Restarts without durable progress in between: so many times the job's restarts_max …
  int32_t budget_times = 1;
  // … or, where a person's number has no say, this many.
  int32_t budget_fixed = 0;
  // It comes and goes with what others do: that it is the same again at the same step says nothing
  // of the job.
  bool passes = false;
  NodeBlame node = NodeBlame::kNothing;
  std::string_view why_not{};  // it is not retried
};

// Nodes, and GPUs, are lost in a large fleet whatever the job does: it may lose more of them
// between two checkpoints than it may crash.
constexpr int32_t kLostWorkersTimes = 10;
// A node with a device that is gone ends whatever is started on it: the job goes elsewhere, as
// after a node that is lost.
constexpr int32_t kUnfitNodesTimes = kLostWorkersTimes;
// A full disk is emptied by people and by clean-up jobs, not by restarts: 10 s, doubling up to 5
// min, ten times as often as others are tried, is more than two hours for restarts_max=3.
constexpr int32_t kFullDisksTimes = 10;
constexpr Duration kMendedDelay = std::chrono::seconds(10);
constexpr Duration kMendedDelayMax = std::chrono::minutes(5);
// A job that is preempted this often between two checkpoints makes no way; someone has to look at
// it.
constexpr int32_t kPreemptionsMax = 100;
// The system that asked a rank to leave may be about to ask its worker, too: placed at once, a
// preempted job could land there again. A worker that has said that it leaves gets no job.
constexpr Duration kPreemptedDelay = std::chrono::seconds(6);

constexpr std::array<CauseRule, kCauses> kCauseRules = {{
    {.name = "rank died", .node = NodeBlame::kCounts},
    {.name = "worker lost", .budget_times = kLostWorkersTimes, .node = NodeBlame::kAtOnce},
    {.name = "hang", .node = NodeBlame::kCounts},
    {.name = "out of memory", .node = NodeBlame::kCounts},
    {.name = "disk full",
     .budget_times = kFullDisksTimes,
     .passes = true,
     .node = NodeBlame::kCounts},
    {.name = "not started", .node = NodeBlame::kAtOnce},
    {.name = "unfit node", .budget_times = kUnfitNodesTimes, .node = NodeBlame::kCounts},
    {.name = "preempted", .budget_fixed = kPreemptionsMax},
    {.name = "not finite", .retries = false, .why_not = "a retry would compute the same values"},
    {.name = "bad input", .retries = false, .why_not = "bad input is not retried"},
    {.name = "not executable",
     .retries = false,
     .why_not = "what cannot be started is not retried"},
    {.name = "gpu fault", .budget_times = kLostWorkersTimes, .node = NodeBlame::kAtOnce},
}};
constexpr const CauseRule& rule_of(Cause cause) { return kCauseRules[static_cast<size_t>(cause)]; }

}  // namespace muster::coordinator
