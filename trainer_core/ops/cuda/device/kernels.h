// The launchers of the CUDA kernels: each enqueues work on a stream and returns. Requires that the
// caller (class CudaOps) has checked the shapes. The formulas are those of the op table
// (ops/op_table.inc). A void* points to activations, in fp32 or bf16 according to `dtype`.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer_core/ops/cuda/device/device_token_rows.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer::cuda {

// An error that a kernel has detected. A FaultWord is in host memory that is mapped into the
// device. It is 0, or the Fault of one thread that has found an error; if several threads find
// errors, any of them. kToken, kTarget: an id outside of the vocabulary. kStart: a document that
// starts behind one of its positions. kOffsets: more rows of experts than their buffer has.
enum class Fault : int32_t { kNone, kToken, kTarget, kStart, kOffsets };
using FaultWord = int32_t*;

// elementwise.cu
// Returns cudaSuccess if this build has code for the device, else the error.
cudaError_t find_code();
void fill(cudaStream_t, DType, int64_t n, float value, void* x);
void convert(cudaStream_t, int64_t n, DType from_type, const void* from, DType to_type, void* to);
void add(cudaStream_t, DType, int64_t n, const void* x, const void* delta, void* sum);
void scale(cudaStream_t, DType, int64_t n, float factor, void* x);
void add_bias(cudaStream_t, DType, int64_t rows, int64_t width, const float* bias, void* x);
// The arguments of copy_columns().
struct Columns {
  int64_t rows, columns;
  DType from_type;
  const void* from;  // begins at the first column to copy
  int64_t from_width;
  DType to_type;
  void* to;
  int64_t to_width;
};
void copy_columns(cudaStream_t, const Columns&);

// normal_fill.cu Fills rows with values of a Philox stream (base/normal_fill.h).
struct NormalFill {
  uint64_t key, stream;
  float factor;  // NormalStream::std
  int64_t first, pitch;
  int64_t rows, width;
  DType dtype;
  void* x;  // (rows, width), in fp32 or bf16
};
void fill_normal(cudaStream_t, const NormalFill&);

// reduction.cu
// The maximum number of partial sums of a reduction, in fp64.
constexpr int64_t kReductionBlocks = 256;
// Returns the number of blocks for this number of elements. It depends on nothing else, so that
// results are reproducible.
constexpr int64_t reduction_blocks(int64_t elements) {
  constexpr int64_t kElementsMin = 1024;
  const int64_t blocks = (elements + kElementsMin - 1) / kElementsMin;
  return blocks < 1 ? 1 : blocks < kReductionBlocks ? blocks : kReductionBlocks;
}
void sum(cudaStream_t, DType, int64_t n, const void* x, double* partial);
void sum_of_squares(cudaStream_t, DType, int64_t n, const void* x, double* partial);
// Stores in `to` (width), or adds to it, the sum of `blocks` rows of `from`. Consecutive rows lie
// `stride` elements apart and are added in order.
void add_blocks(cudaStream_t, const float* from, int64_t blocks, int64_t stride, int64_t width,
                Accumulate, float* to);
// Divides the rows of dx (rows, width) into `blocks` runs; `partial` (blocks, width) = the sum of
// each run's rows.
void sum_rows(cudaStream_t, DType, int64_t rows, int64_t width, const void* dx, int64_t blocks,
              float* partial);
// `row_sums` (rows) and `column_sums` (blocks, width) = the sums of the squares of x (rows, width).
void squares(cudaStream_t, int64_t rows, int64_t width, const float* x, int64_t blocks,
             double* row_sums, double* column_sums);

// dropout.cu
struct Dropout {
  DType dtype;
  int64_t rows, width;
  uint64_t key;
  uint32_t location;
  uint32_t threshold;  // random words below this number drop their element
  float factor;
  Elements elements;
  void* x;
};
void dropout(cudaStream_t, const Dropout&);

// activation.cu
struct ActivationArgs {
  DType dtype;
  Activation kind;
  bool gated;
  int64_t rows, width, in_width;
  const void* in;
  void* out;   // the output; in the backward pass the output's gradient, which is read
  void* d_in;  // used in the backward pass only; rows are laid out like those of `in`
};
void activate(cudaStream_t, const ActivationArgs&);
void activate_backward(cudaStream_t, const ActivationArgs&);

// norm.cu
struct NormForward {
  DType dtype;
  NormType type;
  int64_t rows, width;
  float eps, gain_offset;
  const void* x;
  const void* delta;  // null: nothing is added, and `sum` is not written
  const float* gain;
  const float* bias;  // only for kLayer
  void* sum;
  void* y;
  float* stats;
};
void norm(cudaStream_t, const NormForward&);
struct NormBackward {
  DType dtype;
  NormType type;
  int64_t rows, width;
  float gain_offset;
  const void* dy;
  const void* x;
  const float* gain;
  const float* stats;
  void* dx;
  int64_t blocks;  // number of blocks of rows, each summed separately
  float* partial;  // (blocks, 2, width): for the gain's gradient, then for the bias's
};
void norm_backward(cudaStream_t, const NormBackward&);

// rope.cu
struct Rope {
  DType dtype;
  int64_t rows, heads, head_dim, width;  // heads: query heads plus key heads
  DeviceTokenRows token_rows;
  const int32_t* starts;  // null: all documents begin at 0
  bool interleaved;
  float sign;
  const float* cos;
  const float* sin;
  void* qkv;
  FaultWord fault;
};
void rope(cudaStream_t, const Rope&);

// embedding.cu
struct Embedding {
  DType dtype, table_type;
  int64_t rows, width;
  // the table has rows [first, first + ids); all token ids are below `limit`
  int64_t first, ids, limit;
  float scale;
  const int32_t* tokens;
  const void* table;
  void* out;
  FaultWord fault;
};
void embedding(cudaStream_t, const Embedding&);
struct EmbeddingBackward {
  DType dtype;
  int64_t rows, width;
  int64_t first, ids, limit;
  float scale;
  const int32_t* tokens;
  const void* dout;
  float* dtable;
  uint64_t* keys;  // scratch of 2 * rows
  FaultWord fault;
};
void embedding_backward(cudaStream_t, const EmbeddingBackward&);
struct PositionRows {
  DType dtype;
  int64_t rows, width;
  DeviceTokenRows token_rows;
  const int32_t* starts;  // null: all documents begin at 0
  float* table;           // the table; in the backward pass its gradient
  void* x;
  FaultWord fault;
  uint64_t* keys = nullptr;  // scratch of 2 * rows, for the gradient
};
void add_positions(cudaStream_t, const PositionRows&);
void positions_backward(cudaStream_t, const PositionRows&);

// cross_entropy.cu
void soft_cap(cudaStream_t, int64_t n, float cap, float* x);
struct CrossEntropy {
  int64_t rows, vocab;
  float soft_cap;  // 0: none
  double z_loss;
  float* logits;
  const int32_t* targets;
  const float* weights;
  float* losses;
  DType gradient_type;
  void* gradient;  // (rows, vocab); may be `logits`; null: only the losses
  FaultWord fault;
};
void cross_entropy(cudaStream_t, const CrossEntropy&);
struct LogitSlice {
  int64_t rows, width;
  // ids of the slice: `width` ids from `first` on; all target ids are below `limit`
  int64_t first, limit;
  float soft_cap;
  float* logits;
  const int32_t* targets;
  float* sums;  // (rows, 3)
  FaultWord fault;
  DType gradient_type = DType::kF32;
  void* gradient = nullptr;  // (rows, width)
};
void logit_sums(cudaStream_t, const LogitSlice&);
struct SlicedLoss {
  int64_t rows, slices;
  double z_loss;
  const float* sums;  // (slices, rows, 3)
  const float* weights;
  float* losses;
};
void sliced_loss(cudaStream_t, const SlicedLoss&);
void sliced_gradient(cudaStream_t, const SlicedLoss&, const LogitSlice&);

// optimizer.cu
void adam(cudaStream_t, const AdamStep&, const Tensor& grads, const Tensor& params, const Tensor& m,
          const Tensor& v);
void adam_direction(cudaStream_t, const AdamStep&, const Tensor& grads, const Tensor& m,
                    const Tensor& v);
void adafactor(cudaStream_t, int64_t n, const AdafactorStep&, float* grads, float* v);
// means (n) = decay means + (1 - decay) (sums grad_scale² / count + eps)
void adafactor_means(cudaStream_t, int64_t n, const AdafactorStep&, int64_t count,
                     const double* sums, float* means);
struct FactoredDirection {
  int64_t rows, width;
  float grad_scale;
  double mean;  // over all rows of the whole matrix
  float* grads;
  const float* row_means;
  const float* column_means;
};
void factored_direction(cudaStream_t, const FactoredDirection&);
void apply_update(cudaStream_t, float rate, float kept, const float* direction,
                  const Tensor& params);

// quantize.cu
void abs_max(cudaStream_t, DType, int64_t rows, int64_t width, const void* x, ScaleOf, float* amax);
void current_scale(cudaStream_t, NumberGrid, int64_t n, const float* amax, float* scale);
void delayed_scale(cudaStream_t, int64_t scales, int64_t length, const float* amax, float* history,
                   float* scale);
struct Quantize {
  NumberGrid grid;
  int64_t rows, width;
  ScaleOf of;  // the elements that share a scale
  const float* scale;
  bool noisy;
  uint64_t key;
  uint32_t location;
  Elements elements;
  DType from_type;
  const void* x;
  DType to_type;
  void* out;
};
void quantize(cudaStream_t, const Quantize&);
struct Dequantize {
  DType dtype;
  int64_t rows, width;
  bool by_row, by_column, accumulate;
  const float* row_scale;
  const float* column_scale;
  const void* product;
  void* out;
};
void dequantize(cudaStream_t, const Dequantize&);

// decode_weights.cu
void decode_weights(cudaStream_t, const WeightBlocks&, const Tensor& out);

}  // namespace muster::trainer::cuda
