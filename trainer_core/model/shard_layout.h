// The parts of a model that a rank of a mesh stores, and the way they are combined. Pure
// arithmetic: no memory, no communication.
//
//   table    the whole model's parameters (param_spec.h)
//   block    the unit of gathering, of the rank's pipeline stage: the embedding, a layer, the end
//   box      the part of a parameter that the rank computes with: its heads, MLP columns,
//            vocabulary rows, experts
//   bucket   the boxes of one block whose storage the same ranks share, as one flat sequence,
//            padded at its end to a multiple of the group's size. Member i of the group stores the
//            i-th part: its shard
//   piece    the part of a box that lies in the rank's shard
//
// The ranks of a bucket's group compute with the same boxes: those along fsdp, sequence and
// context; along expert, except for an expert's parameters; and along tensor, for parameters that
// it does not split. So among the ranks with one `data` coordinate every element is stored once.
// Shards are consecutive in one flat block; parameters, gradients and each moment of Adam have the
// same layout. A single rank that stores fp32 has one bucket per block, and its flat block is the
// table's. This is ZeRO (Rajbhandari et al., 2020) with flat buckets of parameters that are used
// together (FSDP; Zhao et al., 2023): padding is per block, not per parameter.
//
// Parameters are stored in fp32 or bf16 (weight_dtype), all of them in one type. GEMMs read bf16
// matrices where they are stored; norms, biases and the like, which passes read in fp32, are
// converted block by block.
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
  size_t block = 0;  // index in blocks()
  GroupAxes group;   // the ranks that share the storage: only axes of more than one rank
  int32_t group_size = 1;
  // The ranks that together store the whole tensors of the rows: sums over a tensor run over them.
  GroupAxes tensor_group;
  // The type in which a pass reads the values. A bucket that only this rank stores as fp32 is read
  // in place. Otherwise: bf16 for matrices if activations are bf16 and GEMMs are not quantized
  // (those round fp32 values); else fp32.
  DType gathered = DType::kF32;
  // Whether a pass reads a copy of the shard: other ranks have other parts of the bucket, or the
  // shard has another type.
  bool is_copied = false;
  std::vector<ShardRow> rows;  // in the table's order, without gaps
  int64_t elements = 0;        // of the rows
  // ceil(elements / group_size); the last members' shards may be padding.
  int64_t shard_elements = 0;
  int64_t shard_offset = 0;  // of this rank's shard in its flat block

  // Whether the first and the last stage of a pipeline share it: the table of a tied embedding.
  bool is_of_both_ends() const { return group.axes.contains(MeshAxis::kPipeline); }
};

// Consecutive elements of a row's box that this rank stores.
struct ShardPiece {
  size_t param = 0;
  size_t bucket = 0;
  size_t row = 0;      // index in the bucket
  int64_t first = 0;   // index in the box, row-major
  int64_t count = 0;   // more than 0
  int64_t offset = 0;  // in the rank's flat block of shards

  friend bool operator==(const ShardPiece&, const ShardPiece&) = default;
};

class ShardLayout {
 public:
  // The layout of `rank` with activations of `dtype`, which stores parameters as `stored`. Each
  // pipeline stage has `pipeline_chunks` runs of layers, assigned round-robin. Requires a mesh that
  // the model allows: tensor divides the
  // query heads, divides the KV heads or is a multiple of them, and is at most the MLP's width and
  // the vocabulary, which it may split unevenly; expert divides the experts; pipeline times chunks
  // divides the layers.
  static ShardLayout of(const ModelConfig& model, const Mesh& mesh, int32_t rank, DType dtype,
                        int32_t pipeline_chunks = 1, DType stored = DType::kF32);
  // The layout of a single rank with any table, whose order the flat block has. For a type other
  // than fp32 only the stored values are laid out: a pass cannot read them.
  static ShardLayout whole(std::vector<ParamSpec> table, DType stored = DType::kF32);

  const std::vector<ParamSpec>& table() const { return table_; }
  // In the table's order. The last stage also has the embedding's block if the embedding is tied.
  const std::vector<ParamBlock>& blocks() const { return blocks_; }
  const std::vector<ParamBucket>& buckets() const { return buckets_; }  // block by block
  const std::vector<ShardPiece>& pieces() const { return pieces_; }     // ascending by offset
  int64_t elements() const { return elements_; }  // of the flat block of shards, with padding
  DType stored() const { return stored_; }        // the type of the flat block's elements
  // The size of the flat block in elements of fp32's size, to which it is padded.
  int64_t stored_floats() const { return floats_of(elements_, stored_); }
  // Whether ranks share the storage of a bucket of the block.
  bool gathers(size_t block) const;
  // Whether a pass reads a copy of a bucket of the block (ParamBucket::is_copied).
  bool copies(size_t block) const;
  // Whether a bucket of the block is_of_both_ends().
  bool is_of_both_ends(size_t block) const;

  const ShardRow& row(const ShardPiece& piece) const {
    return buckets_[piece.bucket].rows[piece.row];
  }
  // Returns the piece as boxes of its tensor, with their offsets in the flat block of shards.
  std::vector<TensorBox> boxes(const ShardPiece& piece) const;
  // Returns the boxes of all pieces: the parameters that the rank's checkpoints write and read.
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
