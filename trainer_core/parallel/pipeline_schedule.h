// In which order a pipeline stage runs the forward and backward passes of its micro-batches. Pure.
//
// The model's layers are cut into stages * chunks runs of equal length, the virtual stages; stage s has those with numbers s, s + stages,
// s + 2 stages, …, which are its chunks 0, 1, 2, …. A micro-batch goes through the virtual stages forward, and its gradient
// through them backward. With one chunk the order is 1F1B: a stage begins as many forward passes as there are stages behind it, then
// takes turns, so that what it keeps is bounded by the number of stages and not of micro-batches. With more it is the interleaved one: the
// pipeline fills and empties in shorter runs of layers, so less time is idle, for more messages.
//
// Evaluation has forward passes alone: as many micro-batches as there are stages go through one chunk after the other.
//
// Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (2021), section 2.2.
//
// A pass that needs a message waits for it; what it made for another stage is sent beside what comes next, in this order, and a pass
// cannot end before the last message of its kind has left: there is one buffer for each. No further rule is needed: the unit test
// runs every stage against rendezvous messages and never finds all of them waiting.
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
  // Where the micro-batch's activations are kept from the forward to the backward pass of this chunk.
  int32_t slot = 0;
  // And where its tokens are held, from its first pass on this stage to its last.
  int32_t batch = 0;

  friend bool operator==(const PipelinePass&, const PipelinePass&) = default;
};

// All passes of a stage. With more than one chunk the micro-batches are a multiple of the stages.
std::vector<PipelinePass> pipeline_schedule(const PipelineShape& shape, int32_t stage);

// The forward passes of a stage where no backward passes follow: of any number of micro-batches, in one slot.
std::vector<PipelinePass> forward_schedule(const PipelineShape& shape);

// Slots that a stage's schedule uses: the most micro-batches, each in one chunk, whose backward pass is still to come. Chunks
// are of one size, so that any of them may take any slot.
int32_t activation_slots(const PipelineShape& shape, int32_t stage);

// What stages are idle, as a part of a step in which all passes of a kind take equally long, and a backward pass twice as long as a
// forward pass; messages take no time. (p - 1) / (v m + p - 1) for p stages of v chunks and m micro-batches.
double pipeline_bubble(const PipelineShape& shape);

// Of the config's steps: 1 stage without a pipeline.
PipelineShape pipeline_shape(const TrainConfig& config);

}  // namespace muster::trainer
