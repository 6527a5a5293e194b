// The causes that can end an attempt, and a table of their consequences. Values without behaviour.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "common/time/time.h"

namespace muster::coordinator {

// Causes are stored by name (kCauseRules): a new cause may be added at any position, and existing
// names never change.
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
  kStorageAway,
  kLinkCut,
  kTimeLimit,
};
constexpr size_t kCauses = 15;

// The weight of a fault against its node.
enum class NodeBlame {
  kNothing,
  kCounts,  // the second fault within an hour excludes the node
  kAtOnce,  // one fault excludes the node
};

struct CauseRule {
  std::string_view name;
  bool retries = true;
  // The budget of restarts without durable progress between them, as a multiple of the job's
  // restarts_max.
  int32_t budget_times = 1;
  // A fixed budget of restarts, for causes to which restarts_max does not apply. 0: budget_times
  // applies.
  int32_t budget_fixed = 0;
  // The cause depends on other users of the machine, so the same fault at the same step is no
  // evidence against the job.
  bool passes = false;
  NodeBlame node = NodeBlame::kNothing;
  // A clause that explains why the cause is not retried.
  std::string_view why_not{};
};

// A large fleet loses nodes and GPUs independently of its jobs. Therefore a job may lose nodes and
// GPUs more often between two checkpoints than it may crash.
constexpr int32_t kLostWorkersTimes = 10;
// A node with a missing device ends every rank that is started there. The job then moves to another
// node, as after the loss of a node.
constexpr int32_t kUnfitNodesTimes = kLostWorkersTimes;
// Only people and clean-up jobs free space on a full disk or bring storage back, so the job has to
// wait. With back-offs from 10 s, doubling up to 5 min, and ten times the usual budget,
// restarts_max=3 covers more than two hours.
constexpr int32_t kFullDisksTimes = 10;
constexpr Duration kMendedDelay = std::chrono::seconds(10);
constexpr Duration kMendedDelayMax = std::chrono::minutes(5);
// The maximum number of preemptions between two checkpoints. A job that is preempted more often
// makes no progress, and a person has to investigate.
constexpr int32_t kPreemptionsMax = 100;
// The back-off after a preemption. The system that preempts a rank may preempt the rank's worker
// next, and a job that is placed again immediately could be placed on this worker. Within this time
// the worker announces its shutdown, and then gets no job.
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
     .why_not = "a program that is missing or cannot be executed is not retried"},
    {.name = "gpu fault", .budget_times = kLostWorkersTimes, .node = NodeBlame::kAtOnce},
    {.name = "storage away", .budget_times = kFullDisksTimes, .passes = true},
    // Two nodes cannot reach each other. It is unknown which of them is at fault, and both can
    // serve jobs without the other.
    {.name = "link cut", .budget_times = kLostWorkersTimes, .passes = true},
    {.name = "time limit",
     .retries = false,
     .why_not = "a new job with the same output continues from its newest checkpoint"},
}};
constexpr const CauseRule& rule_of(Cause cause) { return kCauseRules[static_cast<size_t>(cause)]; }

}  // namespace muster::coordinator
