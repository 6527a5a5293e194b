// The CPU kernels: serial, over ranges of rows or elements, each dispatched to the best instruction
// set of the machine. cpu_ops.cc checks shapes and splits the ranges among threads. Formulas are in
// ops/ops.h. void* arguments are activations, fp32 or bf16 as `dtype` states: all of a call have
// one type.
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
// sum = x + delta, all of `dtype`.
void add_activations_range(DType dtype, int64_t n, const void* x, const void* delta, void* sum);
void convert_range(int64_t n, DType from_type, const void* from, DType to_type, void* to);
void scale_range(DType dtype, int64_t n, float factor, void* x);  // x *= factor
void fill_range(DType dtype, int64_t n, float value, void* x);
double sum_range(int64_t n, const float* x);             // fp64 accumulators
double sum_of_squares_range(int64_t n, const float* x);  // fp64 accumulators

// dropout.cc: x (…, width), by rows.
struct DropoutRows {
  DropoutMask mask;
  DType dtype;
  int64_t width;
  void* x;
};
void dropout_rows(int64_t begin, int64_t end, const DropoutRows& args);

// quantize.cc: x (…, width), by rows.
struct AbsMax {
  DType dtype;
  int64_t width;
  const void* x;
};
// The largest magnitudes as the bit patterns of fp32 values, which have the same order, with NaN
// above all. abs_max_range covers elements [begin, end); the column variant updates `amax` with
// columns [begin, end) of `rows` rows.
uint32_t abs_max_range(int64_t begin, int64_t end, const AbsMax& args);
void abs_max_columns(int64_t begin, int64_t end, int64_t rows, const AbsMax& args, float* amax);
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
void quantize_rows(int64_t begin, int64_t end, const Quantize& args);
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
void dequantize_rows(int64_t begin, int64_t end, const Dequantize& args);

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
void norm_rows(int64_t begin, int64_t end, const NormForward& args);
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
// Adds these rows' part to dgain, and with kLayer to dbias.
void norm_backward_rows(int64_t begin, int64_t end, const NormBackward& args, float* dgain,
                        float* dbias);

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
void rope_rows(int64_t begin, int64_t end, const Rope& args);

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
void activation_rows(int64_t begin, int64_t end, const ActivationRows& args);
void activation_backward_rows(int64_t begin, int64_t end, const ActivationRows& args);

// cross_entropy.cc: `gradient`: whether to replace logits by gradients.
struct CrossEntropy {
  int64_t vocab;
  float soft_cap;  // 0: none
  double z_loss;
  float* logits;
  const int32_t* targets;
  const float* weights;
  float* losses;
  bool gradient;

  bool has_extras() const { return soft_cap > 0 || z_loss > 0; }
};
void cross_entropy_rows(int64_t begin, int64_t end, const CrossEntropy& args);
void soft_cap_range(int64_t n, float cap, float* x);
// Rows of logits of which this rank has a slice of the ids: see shard_ops.h.
struct LogitSlice {
  int64_t first;  // id
  int64_t width;
  float soft_cap;  // 0: none
  float* logits;   // (R, width)
  const int32_t* targets;
};
void logit_sums_rows(int64_t begin, int64_t end, const LogitSlice& args, float* sums);
struct SlicedLoss {
  int64_t rows;
  int64_t slices;
  double z_loss;
  const float* sums;  // (slices, rows, kLogitSums)
  const float* weights;
  float* losses;
};
void sliced_loss_rows(int64_t begin, int64_t end, const SlicedLoss& args);
// Replaces the slice's logits by their gradient.
void sliced_gradient_rows(int64_t begin, int64_t end, const SlicedLoss& args,
                          const LogitSlice& slice);

// adam.cc: elements [begin, end) of the blocks, m in fp32 or bf16; of an update [0, n).
void adam_range(int64_t begin, int64_t end, const AdamStep& step, const float* grads, float* params,
                const Tensor& m, float* v);
void adam_direction_range(int64_t begin, int64_t end, const AdamStep& step, float* grads,
                          const Tensor& m, float* v);
void apply_update_range(int64_t n, float rate, float kept, const float* direction, float* params);

// adafactor.cc
void adafactor_range(int64_t n, const AdafactorStep& step, float* grads, float* v);
// A matrix (rows, width).
struct Squares {
  int64_t rows;
  int64_t width;
  const float* x;
  double* row_sums;
  double* column_sums;
};
// Adds the sums of rows, or columns, [begin, end).
void add_row_squares(int64_t begin, int64_t end, const Squares& args);
void add_column_squares(int64_t begin, int64_t end, const Squares& args);
// Updates the means from sums of `count` squares each.
void row_factors(const AdafactorStep& step, int64_t count, std::span<const double> sums,
                 float* means);
void column_factors(const AdafactorStep& step, int64_t count, std::span<const double> sums,
                    float* means);
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
// Replaces the gradients of rows [begin, end).
void factored_direction_rows(int64_t begin, int64_t end, const FactoredDirection& args);

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
void embedding_rows(int64_t begin, int64_t end, const Embedding& args, void* out);
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
// Adds columns [begin, end) of all `rows` rows.
void embedding_backward_columns(int64_t begin, int64_t end, int64_t rows,
                                const EmbeddingBackward& args);

}  // namespace muster::trainer::cpu
