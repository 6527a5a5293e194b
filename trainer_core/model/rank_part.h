// Which part of a model's computation a rank of a mesh does: its layers along the pipeline axis; its heads, columns and ids along the
// tensor axis, its experts along expert, its positions of each sequence along sequence and context (token_layout.h), and its rows of
// the residual stream. Pure arithmetic; shard_layout.h cuts the parameters by the same shares.
#pragma once

#include <cstdint>

#include "common/mesh.h"

namespace muster::trainer {

// A rank's place along an axis.
struct AxisPlace {
  int index = 0;
  int ranks = 1;
};

// Units [first, first + count) of a dimension.
struct Share {
  int64_t first = 0;
  int64_t count = 0;

  int64_t end() const { return first + count; }
};

// Shares differ by one unit at most. Units that are fewer than ranks are each that of neighbouring ranks.
constexpr Share share_of(int64_t units, AxisPlace place) {
  const int64_t ranks = place.ranks, index = place.index;
  if (units == 0) return {};  // what the model does not have
  if (units < ranks) return {index / (ranks / units), 1};
  const int64_t first = units * index / ranks;
  return {first, units * (index + 1) / ranks - first};
}
// The largest of all ranks' shares.
constexpr int64_t largest_share(int64_t units, int ranks) { return (units + ranks - 1) / ranks; }

// A stage of a pipeline. The layers are cut into equal runs, as many as there are stages times chunks; stage s has those with numbers
// s, s + stages, s + 2 stages, …, which are its chunks.
struct PipelinePart {
  AxisPlace stage;
  int32_t chunks = 1;
  // Runs of layers, of one micro-batch each, that are between their forward and their backward pass at most
  // (parallel/pipeline_schedule.h).
  int32_t slots = 1;

  bool begins_model() const { return stage.index == 0; }
  bool ends_model() const { return stage.index + 1 == stage.ranks; }
  bool has_all_layers() const { return stage.ranks == 1; }
  // Messages of the forward passes, and of backward passes the other way round: the wrap from the last stage to the first one's next
  // chunk included.
  bool receives_stream() const { return !begins_model() || chunks > 1; }
  bool sends_stream() const { return !ends_model() || chunks > 1; }
};

// By default a rank alone.
struct RankPart {
  AxisPlace tensor;
  AxisPlace sequence;
  AxisPlace context;
  AxisPlace expert;
  PipelinePart pipeline;
  // Of how many micro-batches, over all ranks, a step's batch consists.
  int32_t micro_batches = 1;
  // Logits are made so many bytes at a time: on a processor what stays in its last cache between products.
  int64_t logits_bytes = int64_t{16} << 20;

  // But micro_batches, logits_bytes, and a stage's chunks and slots, which are not the mesh's alone.
  static RankPart of(const Mesh& mesh, int32_t rank);

  // Whether rows of the stream are split among ranks which have other heads, columns and ids of all of them.
  bool splits_rows() const { return tensor.ranks > 1; }
  // How many ranks have positions of the same sequences, and which of them this one is: sequence before context, as in the mesh.
  int sequence_sharers() const { return sequence.ranks * context.ranks; }
  int among_sharers() const { return sequence.index * context.ranks + context.index; }
  // Whether each rank has some of a layer's experts, for the tokens of all of them.
  bool splits_experts() const { return expert.ranks > 1; }
  // Whether layers need what other ranks have (ModelExchange).
  bool exchanges() const { return splits_rows() || sequence_sharers() > 1 || splits_experts(); }
};

}  // namespace muster::trainer
