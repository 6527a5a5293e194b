// The part of a model's computation that a rank of a mesh performs. The pipeline axis divides the
// layers; the tensor axis divides the heads, MLP columns, vocabulary ids and rows of the residual
// stream; the expert axis divides the experts; the sequence and context axes divide the positions
// of each sequence (token_layout.h). Pure arithmetic. shard_layout.h splits the parameters in the
// same way.
#pragma once

#include <cstdint>

#include "common/job/mesh.h"

namespace muster::trainer {

// The coordinate of a rank along an axis, and the degree of the axis.
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

// Returns the share of a coordinate. Shares differ by at most one unit. If there are fewer units
// than ranks, adjacent ranks have the same unit.
constexpr Share share_of(int64_t units, AxisCoordinate coordinate) {
  const int64_t ranks = coordinate.ranks, index = coordinate.index;
  if (units == 0) return {};  // the model has none
  if (units < ranks) return {index / (ranks / units), 1};
  const int64_t first = units * index / ranks;
  return {first, units * (index + 1) / ranks - first};
}
// Returns the number of units of the largest share.
constexpr int64_t largest_share(int64_t units, int ranks) { return (units + ranks - 1) / ranks; }

// A stage of a pipeline. The layers are divided into (stages * chunks) equal runs. Stage s has the
// runs s, s + stages, s + 2 * stages, …, which are its chunks.
struct PipelinePart {
  AxisCoordinate stage;
  int32_t chunks = 1;
  // The maximum number of pairs of a chunk and a micro-batch that are between their forward and
  // their backward pass at the same time (parallel/pipeline_schedule.h).
  int32_t slots = 1;

  // Return whether the stage has the first layers, the last layers, or all layers.
  bool begins_model() const { return stage.index == 0; }
  bool ends_model() const { return stage.index + 1 == stage.ranks; }
  bool has_all_layers() const { return stage.ranks == 1; }
  // Return whether the stage receives or sends the residual stream in forward passes; gradients go
  // in the opposite direction. With several chunks, the last stage sends to the next chunk of the
  // first stage.
  bool receives_stream() const { return !begins_model() || chunks > 1; }
  bool sends_stream() const { return !ends_model() || chunks > 1; }
};

// The coordinates of a rank, and the sizes of its micro-batches. A default RankPart is the only
// rank.
struct RankPart {
  AxisCoordinate tensor;
  AxisCoordinate sequence;
  AxisCoordinate context;
  AxisCoordinate expert;
  PipelinePart pipeline;
  // The number of micro-batches of a step, over all slices of the batch.
  int32_t micro_batches = 1;
  // The approximate bytes of logits that are computed at a time. On a CPU, this amount remains in
  // the last-level cache between GEMMs.
  int64_t logits_bytes = int64_t{16} << 20;

  // Returns the part of `rank` with its coordinates. The caller sets micro_batches, logits_bytes,
  // chunks and slots, which the mesh alone does not determine.
  static RankPart of(const Mesh& mesh, int32_t rank);

  // Returns whether ranks with different heads, columns and ids split the rows of the residual
  // stream.
  bool splits_rows() const { return tensor.ranks > 1; }
  // Return the number of ranks that share the same sequences, and the index of this rank among
  // them. Indices are ordered by the sequence coordinate first, then by context, as in the mesh.
  int sequence_sharers() const { return sequence.ranks * context.ranks; }
  int index_among_sharers() const { return sequence.index * context.ranks + context.index; }
  // Returns whether several ranks split the experts of a layer.
  bool splits_experts() const { return expert.ranks > 1; }
  // Returns whether layers need data of other ranks (ModelExchange).
  bool exchanges() const { return splits_rows() || sequence_sharers() > 1 || splits_experts(); }
};

}  // namespace muster::trainer
