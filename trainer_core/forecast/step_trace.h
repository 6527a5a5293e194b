// The work of one training step of one rank: the operations and collectives that the trainer's own
// code calls (rank/step_passes.h, model/transformer.h, parallel/), recorded without a device
// (step_recorder.h). step_cost.h computes the duration of each piece of work, and step_schedule.h
// when each runs.
//
// A rank has one stream for its computation and one for each communication channel that runs
// concurrently with the computation. Work of a stream runs in order. In addition:
//
//   compute  g0  g1  g2  g3  g4          a work of another stream begins after `after` works of
//                 │       ▲               the computation; a work of the computation begins after
//   fsdp          └─▶ c0 ─┘               the works in `waits`
//
// Collectives that follow the computation (ProcessGroup::follow) are works of its stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/progress/progress_page.h"
#include "trainer_core/base/dtype.h"

namespace muster::trainer {

enum class WorkKind : uint8_t { kGemm, kAttention, kMemory, kHostCopy, kCollective };

// The part of a step to which a work belongs.
enum class StepPhase : uint8_t { kForward, kRecompute, kBackward, kUpdate };

// The sizes of a GEMM (M, K) x (K, N), `batches` times.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t batches = 1;
  bool quantized = false;  // both operands were rounded to 8 bits
  bool fp32 = false;
};

// Causal attention over `keys` positions for `queries` of them.
struct AttentionWork {
  int64_t batch = 0, heads = 0, queries = 0, keys = 0, head_dim = 0;
  bool backward = false;
  bool fp32 = false;  // type of the activations; otherwise bf16
};

// The ranks of a collective.
struct CollectiveGroup {
  std::string name;  // the mesh axes along which members differ: "fsdp"
  int32_t ranks = 1;
  int32_t nodes = 1;  // number of nodes that have members
};

// The streams of a rank. kCompute is the computation; kOverlap gathers parameters and reduces
// gradients.
enum class StepStream : uint8_t { kCompute, kOverlap, kRing, kSend, kReceive };
constexpr size_t kStepStreams = 5;

// A position in a stream.
struct WorkIndex {
  StepStream stream = StepStream::kCompute;
  int32_t index = 0;
};

struct TracedWork {
  WorkKind kind = WorkKind::kMemory;
  StepPhase phase = StepPhase::kForward;
  const char* name = "";  // the operation or the collective
  int32_t layer = -1;     // -1: none
  double bytes = 0;       // read and written; of a collective: the data of CollectiveKind
  double flops = 0;
  GemmShape gemm = {};
  AttentionWork attention = {};
  CollectiveKind collective = CollectiveKind::kNone;
  int32_t group = -1;                 // index in StepTrace::groups
  int32_t after = 0;                  // only for work of other streams
  std::vector<WorkIndex> waits = {};  // only for the computation
};

// One forward, backward, or forward and backward pass of a micro-batch.
struct TracedPass {
  int32_t begin = 0;  // index of its first work of the computation
};

struct StepTrace {
  std::vector<TracedWork> streams[kStepStreams];
  std::vector<CollectiveGroup> groups;
  std::vector<TracedPass> passes;
  int32_t tail = 0;  // index of the first work of the computation after all passes

  std::vector<TracedWork>& of(StepStream stream) { return streams[static_cast<size_t>(stream)]; }
  const std::vector<TracedWork>& of(StepStream stream) const {
    return streams[static_cast<size_t>(stream)];
  }
};

}  // namespace muster::trainer
