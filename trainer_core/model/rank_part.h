// The part of a model's computation that a rank of a mesh performs: its layers along the pipeline
// axis; its heads, columns and ids along the tensor axis; its experts along expert; its positions
// of each sequence along sequence and context (token_layout.h); and its rows of the residual
// stream. Pure arithmetic. shard_layout.h splits the parameters by the same shares.
#pragma once

#include <cstdint>

#include "common/mesh.h"

namespace muster::trainer {

// A rank's coordinate along an axis.
struct AxisCoordinate {
  int index = 0;
  int ranks = 1;
};

// Units [first, first + count) of a dimension.
struct Share {
  int64_t first = 0;
  int64_t count = 0;

  int64_t end() const { return first + count; }
};

// Shares differ by at most one unit. If there are fewer units than ranks, adjacent ranks share a
// unit.
constexpr Share share_of(int64_t units, AxisCoordinate coordinate) {
  const int64_t ranks = coordinate.ranks, index = coordinate.index;
  if (units == 0) return {};  // the model has none
  if (units < ranks) return {index / (ranks / units), 1};
  const int64_t first = units * index / ranks;
  return {first, units * (index + 1) / ranks - first};
}
// Returns the largest of all ranks' shares.
constexpr int64_t largest_share(int64_t units, int ranks) { return (units + ranks - 1) / ranks; }

// A stage of a pipeline. The layers are divided into stages * chunks equal runs. The chunks of
// stage s are the runs s, s + stages, s + 2 stages, ….
struct PipelinePart {
  AxisCoordinate stage;
  int32_t chunks = 1;
  // The largest number of (run, micro-batch) pairs that are between their forward and backward pass
  // at the same time (parallel/pipeline_schedule.h).
  int32_t slots = 1;

  bool begins_model() const { return stage.index == 0; }
  bool ends_model() const { return stage.index + 1 == stage.ranks; }
  bool has_all_layers() const { return stage.ranks == 1; }
  // For messages of the forward passes; those of backward passes go the other way. They include the
  // wrap from the last stage to the first one's next chunk.
  bool receives_stream() const { return !begins_model() || chunks > 1; }
  bool sends_stream() const { return !ends_model() || chunks > 1; }
};

// By default, a single rank.
struct RankPart {
  AxisCoordinate tensor;
  AxisCoordinate sequence;
  AxisCoordinate context;
  AxisCoordinate expert;
  PipelinePart pipeline;
  // The number of micro-batches of a step, over all ranks.
  int32_t micro_batches = 1;
  // The bytes of logits computed at a time: on a CPU they stay in the last-level cache between
  // GEMMs.
  int64_t logits_bytes = int64_t{16} << 20;

  // Returns the mesh's part. The caller sets micro_batches, logits_bytes, chunks and slots, which
  // the mesh alone does not determine.
  static RankPart of(const Mesh& mesh, int32_t rank);

  // Whether the stream's rows are split among ranks that have different heads, columns and ids.
  bool splits_rows() const { return tensor.ranks > 1; }
  // The number of ranks that share the same sequences, and this rank's index among them: sequence
  // before context, as in the mesh.
  int sequence_sharers() const { return sequence.ranks * context.ranks; }
  int among_sharers() const { return sequence.index * context.ranks + context.index; }
  // Whether each rank has some of a layer's experts, for the tokens of all these ranks.
  bool splits_experts() const { return expert.ranks > 1; }
  // Whether layers need data of other ranks (ModelExchange).
  bool exchanges() const { return splits_rows() || sequence_sharers() > 1 || splits_experts(); }
};

}  // namespace muster::trainer
