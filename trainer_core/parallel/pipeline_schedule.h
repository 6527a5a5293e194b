// The order in which a pipeline stage runs the forward and backward passes of its micro-batches.
// Pure arithmetic.
//
// The layers of the model are divided into (stages * chunks) runs of equal length, the virtual
// stages. Stage s has the runs s, s + stages, s + 2 * stages, …, which are its chunks 0, 1, 2, …. A
// micro-batch passes forward through the virtual stages, and its gradient passes backward. With one
// chunk the order is 1F1B: a stage first runs as many forward passes as there are later stages,
// then alternates between forward and backward passes. So the saved activations are bounded by the
// number of stages instead of the number of micro-batches. With more chunks the order is
// interleaved: the pipeline fills and drains in shorter runs of layers, so stages are idle for less
// time, but there are more messages.
//
// An evaluation has only forward passes. Micro-batches are divided into groups whose size is the
// number of stages, and each group passes through one chunk after the other.
//
// Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM" (2021), section 2.2.
//
// A pass blocks until the message with its input has arrived. Its output for another stage is sent
// while later passes run. Each kind of message has one buffer, so a pass cannot end before the
// previous message of its kind was sent. These rules cannot deadlock: the unit test runs all stages
// with messages whose send blocks until the matching receive, and verifies that never all stages
// wait.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// The sizes of a pipeline.
struct PipelineShape {
  int32_t stages = 1;
  int32_t chunks = 1;         // layer runs per stage
  int32_t micro_batches = 1;  // per step

  int32_t virtual_stages() const { return stages * chunks; }
};

// The kinds of passes.
enum class PassKind : uint8_t { kForward, kBackward };

// A forward or backward pass of a micro-batch through a chunk of this stage.
struct PipelinePass {
  PassKind kind = PassKind::kForward;
  int32_t chunk = 0;
  int32_t micro_batch = 0;
  // Index of the activation slot that the micro-batch uses from its forward pass through this chunk
  // to its backward pass.
  int32_t slot = 0;
  // Index of the token buffer that the micro-batch uses from its first pass on this stage to its
  // last.
  int32_t batch = 0;

  friend bool operator==(const PipelinePass&, const PipelinePass&) = default;
};

// Returns the passes of a stage in a training step, in order. With several chunks, requires that
// the number of micro-batches is a multiple of the number of stages.
std::vector<PipelinePass> pipeline_schedule(const PipelineShape& shape, int32_t stage);

// Returns the passes of a stage in an evaluation, which are all forward passes, in order. All use
// slot 0. Allows any number of micro-batches.
std::vector<PipelinePass> forward_schedule(const PipelineShape& shape);

// Returns the number of activation slots that the schedule of a stage uses: the maximum number of
// pairs (chunk, micro-batch) that are between their forward and their backward pass at the same
// time. Chunks have equal sizes, so any chunk may use any slot.
int32_t activation_slots(const PipelineShape& shape, int32_t stage);

// Returns the fraction of a step in which a stage is idle: (p - 1) / (v m + p - 1) for p stages of
// v chunks and m micro-batches. This assumes that a backward pass takes twice as long as a forward
// pass and that messages take no time.
double pipeline_bubble(const PipelineShape& shape);

// Returns the shape of the steps of a training; 1 stage without a pipeline.
PipelineShape pipeline_shape(const TrainConfig& config);

}  // namespace muster::trainer
