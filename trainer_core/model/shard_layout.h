// What a rank of a mesh stores of a model, and how the parts come together. Pure arithmetic: no memory, no communication.
//
//   table    the whole model's parameters (param_spec.h)
//   block    what is gathered at once: the embedding, a layer, the end. Of the rank's pipeline stage
//   box      a parameter's part that the rank computes with: its heads, MLP columns, vocabulary rows, experts
//   bucket   the boxes of one block whose storage the same ranks share, as one flat sequence; padded at its end to a multiple of
//            the group's size. Member i of the group stores the i-th part: its shard
//   piece    what of a box lies in the rank's shard
//
// The ranks of a bucket's group compute with the same numbers of them: those along fsdp, sequence and context, along expert where it
// is no expert's, and along tensor where that does not split it. So among the ranks that have one `data` coordinate every
// number is stored once. Shards lie one after the other in one flat block, which parameters, gradients and each moment of Adam have
// alike. A rank alone has one bucket a block, and its flat block is the table's: ZeRO (Rajbhandari et al., 2020) with flat
// buckets of what is used together (FSDP; Zhao et al., 2023), which pads a block once and not each of its parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/mesh.h"
#include "trainer_core/base/dtype.h"
#include "trainer_core/base/tensor_box.h"
#include "trainer_core/model/param_spec.h"

namespace muster::trainer {

// A parameter's box in a bucket. Its offset counts from the bucket's start.
struct ShardRow {
  size_t param = 0;  // row of the table
  TensorBox box;
};

struct ParamBucket {
  size_t block = 0;  // of blocks()
  GroupAxes group;   // who shares the storage: only axes of more than one rank
  int32_t group_size = 1;
  // The ranks that together store the whole tensors of its rows: what is summed over a tensor is summed over them.
  GroupAxes tensor_group;
  // What a gather hands out: bf16 of matrices that ranks share where activations are bf16 and no product is quantized (those round
  // the fp32 masters); else fp32.
  DType gathered = DType::kF32;
  std::vector<ShardRow> rows;  // in the table's order, without gaps
  int64_t elements = 0;        // of the rows
  int64_t shard_elements =
      0;                     // ceil(elements / group_size): the last members' shards may be padding
  int64_t shard_offset = 0;  // of this rank's shard in its flat block

  // Whether the first and the last stage of a pipeline share it: the table of a tied embedding.
  bool is_of_both_ends() const { return group.axes.contains(MeshAxis::kPipeline); }
};

// Consecutive elements of a row's box that this rank stores.
struct ShardPiece {
  size_t param = 0;
  size_t bucket = 0;
  size_t row = 0;      // of the bucket
  int64_t first = 0;   // of the box's elements, row-major
  int64_t count = 0;   // more than 0
  int64_t offset = 0;  // in the rank's flat block of shards

  friend bool operator==(const ShardPiece&, const ShardPiece&) = default;
};

class ShardLayout {
 public:
  // Of `rank`, where activations are of `dtype`. Each pipeline stage has `pipeline_chunks` runs of layers, dealt in turn. Requires a mesh
  // that the model allows: tensor divides the query heads, and the KV heads or is a multiple of them, and is at most the MLP's
  // width and the vocabulary, which it may cut unevenly; expert divides the experts, pipeline times chunks the layers.
  static ShardLayout of(const ModelConfig& model, const Mesh& mesh, int32_t rank, DType dtype,
                        int32_t pipeline_chunks = 1);
  // A rank alone, with any table.
  static ShardLayout whole(std::vector<ParamSpec> table);

  const std::vector<ParamSpec>& table() const { return table_; }
  // In the table's order. The last stage has the embedding's, too, where it is tied.
  const std::vector<ParamBlock>& blocks() const { return blocks_; }
  const std::vector<ParamBucket>& buckets() const { return buckets_; }  // block by block
  const std::vector<ShardPiece>& pieces() const { return pieces_; }     // ascending by offset
  int64_t elements() const { return elements_; }  // of the flat block of shards, padding included
  // Whether ranks share the storage of a bucket of the block.
  bool gathers(size_t block) const;
  // Whether a bucket of the block is_of_both_ends().
  bool is_of_both_ends(size_t block) const;

  const ShardRow& row(const ShardPiece& piece) const {
    return buckets_[piece.bucket].rows[piece.row];
  }
  // The piece as boxes of its tensor, with their offsets in the flat block of shards.
  std::vector<TensorBox> boxes(const ShardPiece& piece) const;
  // All pieces': what the rank's checkpoints write and read of the parameters.
  std::vector<TensorBox> stored_boxes() const;

 private:
  ShardLayout() = default;

  std::vector<ParamSpec> table_;
  std::vector<ParamBlock> blocks_;
  std::vector<ParamBucket> buckets_;
  std::vector<ShardPiece> pieces_;
  int64_t elements_ = 0;

  friend class ShardLayoutBuilder;
};

}  // namespace muster::trainer
