// The parts of a model's parameters that a rank of a mesh stores, and the groups of ranks that
// gather them. Pure arithmetic: no memory, no communication. The terms are:
//
//   table    all parameters of the model (param_spec.h)
//   block    the unit of gathering: the embedding, a layer or the end of the model. A rank has the
//            blocks of its pipeline stage
//   box      the part of a parameter with which the rank computes: its heads, MLP columns,
//            vocabulary rows or experts
//   bucket   those boxes of a block whose storage the same group of ranks shares, concatenated to
//            one flat sequence and padded at the end to a multiple of the group's size
//   shard    the part of a bucket that a rank stores: member i of the group stores the i-th of
//            group_size equal parts
//   piece    the part of a box that lies in the rank's shard
//
// The ranks of a bucket's group compute with the same boxes. A group extends along the fsdp,
// sequence and context axes, along the expert axis except for the parameters of experts, and along
// the tensor axis for parameters that tensor parallelism does not split. So the ranks with the same
// `data` coordinate store every element exactly once. The shards of a rank are consecutive in one
// flat block; parameters, gradients and each moment of Adam have the same layout. A single rank
// that stores fp32 has one bucket per block, and its flat block is the table's. This is ZeRO
// (Rajbhandari et al., 2020) with flat buckets of parameters that are used together, as in FSDP
// (Zhao et al., 2023): padding is per bucket, not per parameter.
//
// Each part of the parameters (ParamPart) has a layout of its own with separate flat blocks, but
// the same numbers of blocks.
//
// All parameters of a layout are stored in one type, fp32 or bf16 (weight_dtype), or as codes with
// a scale per 64 elements (kI8, base/weight_blocks.h). Shards of codes are padded to whole groups
// of 64. GEMMs read bf16 matrices where they are stored. Parameters that passes read in fp32, such
// as those of norms and biases, are converted block by block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/job/mesh.h"
#include "trainer_core/base/dtype.h"
#include "trainer_core/base/tensor_box.h"
#include "trainer_core/model/param_spec.h"
#include "trainer_core/model/rank_part.h"

namespace muster::trainer {

// The box of a parameter in a bucket. The offset of the box is relative to the bucket's start.
struct ShardRow {
  size_t param = 0;  // row of the layout's table
  TensorBox box;
};

// A bucket, and this rank's shard of it.
struct ParamBucket {
  size_t block = 0;  // index in blocks()
  GroupAxes group;   // the ranks that share the storage: axes of degree 1 are omitted
  int32_t group_size = 1;
  // The ranks that together store the complete tensors of `rows`. A sum over all elements of a
  // tensor is reduced over this group.
  GroupAxes tensor_group;
  // The type in which a pass reads the values. A bucket that only this rank stores, as fp32, is
  // read in place. Otherwise it is bf16 for matrices if activations are bf16 and GEMMs are not
  // quantized, and fp32 for the rest: quantized GEMMs round fp32 values themselves.
  DType gathered = DType::kF32;
  // Whether a pass reads a copy of the shard: other ranks have other parts of the bucket, or the
  // shard has another type.
  bool is_copied = false;
  std::vector<ShardRow> rows;  // in the table's order, without gaps
  int64_t elements = 0;        // elements of the rows, without padding
  // Elements of each shard: ceil(elements / group_size). The shards of the last members may be
  // padding, partly or completely.
  int64_t shard_elements = 0;
  int64_t shard_offset = 0;  // offset of this rank's shard in its flat block

  // Returns whether the first and the last stage of a pipeline share the bucket, which has the
  // table of a tied embedding.
  bool is_of_both_ends() const { return group.axes.contains(MeshAxis::kPipeline); }
};

// Returns the box of a parameter with which a tensor rank computes.
TensorBox tensor_box(const ParamSpec& spec, AxisCoordinate tensor);
// Returns the boxes of a tensor rank as a table of their own, with the names of `table`.
std::vector<ParamSpec> tensor_part_of(const std::vector<ParamSpec>& table, AxisCoordinate tensor);

// Consecutive elements of a row's box that this rank stores.
struct ShardPiece {
  size_t param = 0;
  size_t bucket = 0;
  size_t row = 0;      // index in ParamBucket::rows
  int64_t first = 0;   // index of the first element in the box, row-major
  int64_t count = 0;   // number of elements, at least 1
  int64_t offset = 0;  // offset in the rank's flat block of shards

  friend bool operator==(const ShardPiece&, const ShardPiece&) = default;
};

// The blocks, buckets and pieces of a rank.
class ShardLayout {
 public:
  // Returns the layout of `rank` with activations of `dtype`, for the parameters of `part`, which
  // it stores as `stored`. Each pipeline stage has `pipeline_chunks` runs of layers, assigned
  // round-robin. Requires a mesh that mesh_rules.h allows for the model.
  static ShardLayout of(const ModelConfig& model, const Mesh& mesh, int32_t rank, DType dtype,
                        int32_t pipeline_chunks = 1, DType stored = DType::kF32,
                        ParamPart part = ParamPart::kTrained);
  // Returns the layout of a single rank, with any table. With a type other than fp32, it describes
  // stored values only: a pass cannot read them.
  static ShardLayout whole(const std::vector<ParamSpec>& table, DType stored = DType::kF32,
                           ParamPart part = ParamPart::kTrained);

  // The parameters of the layout's part of the model, on all ranks (part_of()).
  const std::vector<ParamSpec>& table() const { return table_; }
  // The blocks of this rank's stage, in the order of the model's table. They include blocks that
  // have only parameters of the other part. The last stage also has the block of the embedding if
  // the embedding is tied.
  const std::vector<ParamBlock>& blocks() const { return blocks_; }
  const std::vector<ParamBucket>& buckets() const { return buckets_; }  // block by block
  const std::vector<ShardPiece>& pieces() const { return pieces_; }     // ascending by offset
  int64_t elements() const { return elements_; }  // elements of the flat block, with padding
  DType stored() const { return stored_; }        // the type of the flat block's elements
  // Returns the size of the flat block in units of an fp32 element; the block is padded to them.
  int64_t stored_floats() const { return floats_of(elements_, stored_); }
  // Returns whether several ranks share the storage of a bucket of the block.
  bool gathers(size_t block) const;
  // Returns whether a pass reads a copy of a bucket of the block (ParamBucket::is_copied).
  bool copies(size_t block) const;
  // Returns whether a bucket of the block is_of_both_ends().
  bool is_of_both_ends(size_t block) const;

  // Returns the row of a piece.
  const ShardRow& row(const ShardPiece& piece) const {
    return buckets_[piece.bucket].rows[piece.row];
  }
  // Returns the elements of a piece as boxes of its tensor, with offsets in the flat block of
  // shards.
  std::vector<TensorBox> boxes(const ShardPiece& piece) const;
  // Returns the boxes of all pieces: the parameters that the rank reads from checkpoints and writes
  // to them.
  std::vector<TensorBox> stored_boxes() const;

 private:
  ShardLayout() = default;

  std::vector<ParamSpec> table_;
  std::vector<ParamBlock> blocks_;
  std::vector<ParamBucket> buckets_;
  std::vector<ShardPiece> pieces_;
  int64_t elements_ = 0;
  DType stored_ = DType::kF32;

  friend class ShardLayoutBuilder;
};

}  // namespace muster::trainer
