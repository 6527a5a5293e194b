// The order in which a pipeline stage runs the forward and backward passes of its micro-batches.
// Pure.
//
// The model's layers are cut into stages * chunks runs of equal length, the virtual stages. Stage s
// has runs s, s + stages, s + 2 stages, …, which are its chunks 0, 1, 2, …. A micro-batch passes
// forward through the virtual stages, and its gradient backward. With one chunk the order is 1F1B:
// a stage begins as many forward passes as there are stages behind it, then alternates, so its
// saved activations are bounded by the number of stages instead of micro-batches. With more chunks
// the order is interleaved: the pipeline fills and drains in shorter runs of layers, so less time
// is idle, at the cost of more messages.
//
// Evaluation has only forward passes: groups of as many micro-batches as there are stages pass
// through one chunk after the other.
//
// Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM" (2021), section 2.2.
//
// A pass blocks until its message has arrived. Its output for another stage is sent while later
// passes run, in this order; a pass cannot end before the previous message of its kind has left,
// because each kind has one buffer. No further rule is needed: the unit test runs every stage
// against rendezvous messages and never finds all of them waiting.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

struct PipelineShape {
  int32_t stages = 1;
  int32_t chunks = 1;  // of a stage
  int32_t micro_batches = 1;

  int32_t virtual_stages() const { return stages * chunks; }
};

enum class PassKind : uint8_t { kForward, kBackward };

struct PipelinePass {
  PassKind kind = PassKind::kForward;
  int32_t chunk = 0;
  int32_t micro_batch = 0;
  // Index of the activation slot of the micro-batch, from the forward to the backward pass of this
  // chunk.
  int32_t slot = 0;
  // Index of the token buffer, from the micro-batch's first pass on this stage to its last.
  int32_t batch = 0;

  friend bool operator==(const PipelinePass&, const PipelinePass&) = default;
};

// Returns all passes of a stage. Requires micro-batches to be a multiple of the stages if there is
// more than one chunk.
std::vector<PipelinePass> pipeline_schedule(const PipelineShape& shape, int32_t stage);

// Returns the forward passes of a stage without backward passes, for any number of micro-batches,
// in one slot.
std::vector<PipelinePass> forward_schedule(const PipelineShape& shape);

// Returns the number of activation slots that a stage's schedule uses: the maximum number of pairs
// (chunk, micro-batch) that are between their forward and backward passes. Chunks have equal
// sizes, so any of them may use any slot.
int32_t activation_slots(const PipelineShape& shape, int32_t stage);

// Returns the idle fraction of the stages in a step in which all passes of a kind take equally
// long, a backward pass takes twice as long as a forward pass, and messages take no time: (p - 1) /
// (v m + p - 1) for p stages of v chunks and m micro-batches.
double pipeline_bubble(const PipelineShape& shape);

// Returns the shape of the config's steps; 1 stage without a pipeline.
PipelineShape pipeline_shape(const TrainConfig& config);

}  // namespace muster::trainer
