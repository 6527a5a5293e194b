// The arguments of CPU kernels, and the kernels that several files call. Kernels are serial, work
// on ranges of rows or elements, and are dispatched to the best instruction set of the machine.
// void* arguments are activations, fp32 or bf16 as `dtype` states: all of a call have one type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "trainer_core/ops/ops.h"

namespace muster::trainer::cpu {

// elementwise.cc
void add_range(int64_t n, const float* x, float* y);                         // y += x
void add_parameters_range(DType dtype, int64_t n, const float* x, void* y);  // y += x
void add_gradients_range(DType dtype, int64_t n, const void* x, float* y);   // y += x
double sum_range(int64_t n, const float* x);                                 // fp64 accumulators
double sum_of_squares_range(int64_t n, const float* x);                      // fp64 accumulators

// dropout.cc: x (…, width), by rows.
struct DropoutRows {
  DropoutMask mask;
  DType dtype;
  int64_t width;
  void* x;
};

// quantize.cc: x (…, width), by rows.
struct AbsMax {
  DType dtype;
  int64_t width;
  const void* x;
};
struct Quantize {
  NumberGrid grid;
  int64_t width;
  ScaleOf of;
  const float* scale;
  std::optional<RoundingNoise> noise;
  DType from_type;
  const void* x;
  DType to_type;
  void* out;
};
struct Dequantize {
  int64_t width;
  bool by_row, by_column;  // else one number for all
  const float* row_scale;
  const float* column_scale;
  bool accumulate;
  DType dtype;  // both tensors' type
  const void* product;
  void* out;
};

// norm.cc: `rows` rows of `width`. `delta` may be null; then `sum` is not written. bias is for
// kLayer.
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

// Returns the document starts of a sequence's positions; null without documents.
inline const int32_t* starts_of(const AttentionShape& shape, int64_t sequence) {
  return shape.starts.data == nullptr ? nullptr : shape.starts.i32() + sequence * shape.seq_len;
}
// Returns the first position that the query in row `row` of a sequence sees.
inline int64_t oldest_key(const AttentionShape& shape, const int32_t* starts, int64_t row,
                          int64_t position) {
  const int64_t window = shape.window == 0 ? 0 : position - shape.window + 1;
  return std::max<int64_t>(window, starts == nullptr ? 0 : starts[row]);
}

// rope.cc: rows [begin, end) of qkv. `sign` is 1 forward and -1 backward.
struct Rope {
  DType dtype;
  AttentionShape shape;
  RopePairs pairs;
  float sign;
  const float* cos;
  const float* sin;
  void* qkv;
};

// Keys and values inside wider rows: a head's keys are h columns from `column` on, its values K h
// columns further.
struct KeyValueRows {
  const void* data;
  int64_t width;
  int64_t column;
  Positions positions;
};
// attention_forward.cc: tasks are (sequence, query head) pairs; `scratch` holds forward_elements().
struct AttentionForward {
  DType dtype;
  AttentionShape shape;
  const void* qkv;
  KeyValueRows keys;
  const float* bias;  // (H, buckets), or null
  bool sums;          // out is fp32, and not of every row
  bool merge;         // merge with existing out and lse
  void* out;
  float* lse;
};
void attention_tasks(int64_t begin, int64_t end, const AttentionForward& args, float* scratch);
// attention_cached.cc: keys and values are caches (B, K, capacity, h); `position` is the first new
// one.
struct AttentionCached {
  DType dtype;
  AttentionShape shape;
  int64_t position;
  int64_t capacity;
  const void* qkv;
  const float* bias;  // (H, buckets), or null
  void* keys;
  void* values;
  void* out;
};
// Copies the keys and values of qkv into the caches.
void append_to_cache(const AttentionCached& args);
// Called after append_to_cache. Tasks are (sequence, query head) pairs; `scratch` holds `capacity`
// scores and, with relative positions, a row of biases after them.
void attention_cached_tasks(int64_t begin, int64_t end, const AttentionCached& args,
                            float* scratch);
// attention_backward.cc: tasks are (sequence, key/value head) pairs; `scratch` holds
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
  bool add;  // to gradients, which are fp32 then
  void* d_query;
  int64_t d_query_width;
  void* d_keys;   // rows as those of `keys`
  float* d_bias;  // (B, H, buckets), each sequence's own, or null
};
void attention_backward_tasks(int64_t begin, int64_t end, const AttentionBackward& args,
                              float* scratch);

// activation.cc: `in` has rows of in_width, gate before up. The backward operation reads out (rows,
// width) and writes d_in, with rows like `in`.
struct ActivationRows {
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
// Rows of logits of which this rank has a slice of the ids: see shard_ops.h.
struct LogitSlice {
  int64_t first;  // id
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

// adafactor.cc
// A matrix (rows, width).
struct Squares {
  int64_t rows;
  int64_t width;
  const float* x;
  double* row_sums;
  double* column_sums;
};
// Gradients (…, width) with the means of their rows and columns; `mean` is the mean over all rows
// of the full matrix.
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
  DType table_dtype;  // fp32 or bf16 as well
  int64_t first;      // id of the table's first row; ids beside its `ids` have zeros
  int64_t ids;
  int64_t width;
  float scale;
  const int32_t* tokens;
  const void* table;
};
struct EmbeddingBackward {
  DType dtype;
  int64_t first;  // id of the table's first row; ids beside its `ids` are left out
  int64_t ids;
  int64_t width;
  float scale;
  const int32_t* tokens;
  const void* dout;
  float* dtable;
};

}  // namespace muster::trainer::cpu
