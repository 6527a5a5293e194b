// The arguments of CPU kernels, and the kernels that several files call. A kernel runs on one
// thread, on a range of rows or elements, with the best instruction set of the machine. The
// formulas are those of the op table (ops.h). A void* points to activations of the type `dtype`,
// fp32 or bf16; all activations of a call have the same type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "trainer_core/ops/ops.h"

namespace muster::trainer::cpu {

// elementwise.cc. add_parameters_range adds a row of parameters to activations; add_gradients_range
// adds the gradient of activations to the gradient of such a row.
void add_range(int64_t n, const float* x, float* y);                         // y += x
void add_parameters_range(DType dtype, int64_t n, const float* x, void* y);  // y += x
void add_gradients_range(DType dtype, int64_t n, const void* x, float* y);   // y += x
double sum_range(int64_t n, const float* x);                                 // fp64 accumulators
double sum_of_squares_range(int64_t n, const float* x);                      // fp64 accumulators

// dropout.cc. x is (…, width); the kernel works on rows.
struct DropoutRows {
  DropoutMask mask;
  DType dtype;
  int64_t width;
  void* x;
};

// quantize.cc. x is (…, width); the kernels work on rows.
struct AbsMax {
  DType dtype;
  int64_t width;
  const void* x;
};
struct Quantize {
  NumberGrid grid;
  int64_t width;
  ScaleOf of;  // the elements that share a scale
  const float* scale;
  std::optional<RoundingNoise> noise;
  DType from_type;
  const void* x;
  DType to_type;
  void* out;
};
struct Dequantize {
  int64_t width;
  bool by_row, by_column;  // scales differ by row, by column; else one scale for all
  const float* row_scale;
  const float* column_scale;
  bool accumulate;
  DType dtype;  // type of both tensors
  const void* product;
  void* out;
};

// norm.cc. x has `rows` rows of `width` elements. If `delta` is null, nothing is added to x, and
// `sum` is not written. Only kLayer has a bias.
struct NormForward {
  DType dtype;
  NormType type;
  int64_t rows;
  int64_t width;
  float eps;
  float gain_offset;
  const void* x;
  const void* delta;
  const float* gain;
  const float* bias;
  void* sum;
  void* y;
  float* stats;
};
struct NormBackward {
  DType dtype;
  NormType type;
  int64_t rows;
  int64_t width;
  float gain_offset;
  const void* dy;
  const void* x;
  const float* gain;
  const float* stats;
  void* dx;
};

// Returns, for each position of a sequence, the first position of its document
// (AttentionShape::starts); null if the shape has none.
inline const int32_t* starts_of(const AttentionShape& shape, int64_t sequence) {
  return shape.starts.data == nullptr ? nullptr : shape.starts.i32() + sequence * shape.seq_len;
}
// Returns the first position to which a query attends. The query is in row `row` of its sequence
// and has the position `position`.
inline int64_t oldest_key(const AttentionShape& shape, const int32_t* starts, int64_t row,
                          int64_t position) {
  const int64_t window = shape.window == 0 ? 0 : position - shape.window + 1;
  return std::max<int64_t>(window, starts == nullptr ? 0 : starts[row]);
}

// rope.cc. `sign`: 1 forward, -1 backward.
struct Rope {
  DType dtype;
  AttentionShape shape;
  RopePairs pairs;
  float sign;
  const float* cos;
  const float* sin;
  void* qkv;
};

// Keys and values inside wider rows. The keys of all heads begin at `column`, the values K h
// columns later.
struct KeyValueRows {
  const void* data;
  int64_t width;
  int64_t column;
  Positions positions;
};
// attention_forward.cc. A task is a pair of a sequence and a query head; `scratch` has
// forward_elements().
struct AttentionForward {
  DType dtype;
  AttentionShape shape;
  const void* qkv;
  KeyValueRows keys;
  const float* bias;  // (H, buckets), or null
  // true: out is fp32 and holds partial results, to be merged with those of other keys
  bool sums;
  bool merge;  // merge with the existing out and lse
  void* out;
  float* lse;
};
void attention_tasks(int64_t begin, int64_t end, const AttentionForward& args, float* scratch);
// attention_paged.cc. keys and values are caches (blocks, K, P, h) of `dtype`, or of int8 with
// scales (blocks, K, P).
struct AttentionPaged {
  DType dtype;
  AttentionShape shape;  // one sequence of R positions
  const int32_t* sequences;
  const int32_t* positions;
  const int32_t* blocks;
  int64_t blocks_per_sequence;  // M
  int64_t block_positions;      // P
  int64_t positions_end;        // one more than the largest position of a row
  const void* qkv;
  const float* bias;  // (H, buckets), or null
  void* keys;
  void* values;
  float* key_scales;  // null: the cache is not int8
  float* value_scales;
  void* out;

  // Returns the index of a position's block in the cache.
  int64_t block_of(int64_t row, int64_t position) const {
    return blocks[sequences[row] * blocks_per_sequence + position / block_positions];
  }
};
// Copies the keys and values of qkv into the caches.
void append_to_cache(const AttentionPaged& args);
// Computes tasks [begin, end). Task head * R + row is a pair of a query head and a row. `scratch`
// has scores for M P positions, and with relative biases, a row of biases after them. Called after
// append_to_cache().
void attention_paged_tasks(int64_t begin, int64_t end, const AttentionPaged& args, float* scratch);
// attention_backward.cc. A task is a pair of a sequence and a key/value head; `scratch` has
// backward_elements().
struct AttentionBackward {
  DType dtype;
  AttentionShape shape;
  const void* qkv;
  KeyValueRows keys;
  const float* bias;  // (H, buckets), or null
  const void* out;
  const float* lse;
  const void* dout;
  bool add;  // add to the gradients, which are then fp32
  void* d_query;
  int64_t d_query_width;
  void* d_keys;   // rows laid out as those of `keys`
  float* d_bias;  // (B, H, buckets), one gradient per sequence, or null
};
void attention_backward_tasks(int64_t begin, int64_t end, const AttentionBackward& args,
                              float* scratch);

// activation.cc. `in` has rows of in_width: first the gate, then the input of the multiplication.
// The backward kernel reads the gradient of the output in `out` (rows, width) and writes d_in,
// whose rows are laid out like those of `in`.
struct ActivationArgs {
  DType dtype;
  Activation kind;
  bool gated;
  int64_t width;
  int64_t in_width;
  const void* in;
  void* out;
  void* d_in;
};

// cross_entropy.cc
struct CrossEntropy {
  int64_t vocab;
  float soft_cap;  // 0: none
  double z_loss;
  float* logits;
  const int32_t* targets;
  const float* weights;
  float* losses;
  DType gradient_type;
  void* gradient;  // (R, vocab); may be `logits`; null: only the losses

  bool has_extras() const { return soft_cap > 0 || z_loss > 0; }
};
// Rows of logits if the rank has only a slice of the vocabulary: see shard_ops.h.
struct LogitSlice {
  int64_t first;  // id of the slice's first column
  int64_t width;
  float soft_cap;  // 0: none
  float* logits;   // (R, width)
  const int32_t* targets;
  DType gradient_type = DType::kF32;
  void* gradient = nullptr;  // (R, width)
};
struct SlicedLoss {
  int64_t rows;
  int64_t slices;
  double z_loss;
  const float* sums;  // (slices, rows, kLogitSums)
  const float* weights;
  float* losses;
};

// adafactor.cc. The sums of the squares of a matrix x (rows, width), by row and by column.
struct Squares {
  int64_t rows;
  int64_t width;
  const float* x;
  double* row_sums;
  double* column_sums;
};
// Replaces gradients (…, width) by the update's direction, from the means of squared gradients by
// row and by column. `mean`: the mean over all rows of the full matrix.
struct FactoredDirection {
  int64_t width;
  AdafactorStep step;
  double mean;
  float* grads;
  const float* row_means;
  const float* column_means;
};

// embedding.cc
struct Embedding {
  DType dtype;        // the output's type
  DType table_dtype;  // fp32 or bf16
  // id of the table's first row; a token whose id is not in the table's `ids` rows gives zeros
  int64_t first;
  int64_t ids;
  int64_t width;
  float scale;
  const int32_t* tokens;
  const void* table;
};
struct EmbeddingBackward {
  DType dtype;
  // id of the table's first row; tokens whose ids are not in the table's `ids` rows are left out
  int64_t first;
  int64_t ids;
  int64_t width;
  float scale;
  const int32_t* tokens;
  const void* dout;
  float* dtable;
};

}  // namespace muster::trainer::cpu
