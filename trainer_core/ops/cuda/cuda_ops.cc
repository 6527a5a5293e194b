#include "trainer_core/ops/cuda/cuda_ops.h"

#include <algorithm>
#include <cmath>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer {
namespace cuda {
namespace {

// Selects the call's device before any member of the object is created on it.
int selected(int device) {
  MUSTER_CUDA_CHECK(cudaSetDevice(device));
  return device;
}

std::string device_name(int device) {
  cudaDeviceProp properties{};
  MUSTER_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

const void* at(const Tensor& x, int64_t element) {
  return static_cast<const char*>(x.float_data()) +
         element * static_cast<int64_t>(dtype_bytes(x.dtype));
}
void* mutable_at(const Tensor& x, int64_t element) {
  return static_cast<char*>(x.float_data()) + element * static_cast<int64_t>(dtype_bytes(x.dtype));
}

}  // namespace

CudaOps::CudaOps(const CudaOptions& options)
    : device_(selected(options.device)),
      allows_tf32_(options.allows_tf32),
      queue_(std::make_shared<Queue>(device_)),
      stream_(queue_->stream()),
      scratch_(options.scratch_bytes) {
  if (!options.use_libraries) return;
  const auto take = [this](auto opened, auto& library, std::string_view what) {
    if (opened.ok()) {
      library = *std::move(opened);
    } else {
      notes_.add(
          absl::StrCat("built-in kernels compute all ", av(what), ": ", opened.status().message()));
    }
  };
  take(open_matrix_library(device_name(options.device), options.algorithms_path), library_,
       "GEMMs instead of cuBLASLt");
  take(open_attention_library(), attention_library_, "attention instead of cuDNN");
}

void CudaOps::check_fault() const {
  const int32_t found = *static_cast<const volatile int32_t*>(fault_.data());
  switch (static_cast<Fault>(found)) {
    case Fault::kNone:
      return;
    case Fault::kToken:
      MUSTER_CHECK(false) << "a token outside of the vocabulary";
      return;
    case Fault::kTarget:
      MUSTER_CHECK(false) << "a target outside of the vocabulary";
      return;
    case Fault::kStart:
      MUSTER_CHECK(false) << "a document that starts behind one of its positions";
      return;
    case Fault::kOffsets:
      MUSTER_CHECK(false) << "more rows of experts than their buffer has";
      return;
  }
}

// Memory and order

// Waits, because pageable memory must have been copied when the call returns, and CUDA copies
// page-locked memory asynchronously.
void CudaOps::upload(const void* from, const Tensor& to) {
  if (to.bytes() == 0) return;
  MUSTER_CUDA_CHECK(cudaMemcpyAsync(to.data, from, to.bytes(), cudaMemcpyHostToDevice, stream_));
  synchronize();
}
void CudaOps::download(const Tensor& from, void* to) {
  if (from.bytes() == 0) return;
  MUSTER_CUDA_CHECK(cudaMemcpyAsync(to, from.data, from.bytes(), cudaMemcpyDeviceToHost, stream_));
  synchronize();
}
// The current device is per thread, and calls may come from any thread: each call that waits
// selects the device for the later calls of its thread.
void CudaOps::synchronize() {
  MUSTER_CUDA_CHECK(cudaSetDevice(device_));
  queue_->stream().synchronize();
  check_fault();
}

// Elementwise and reductions

void CudaOps::do_fill(const Tensor& x, float value) {
  cuda::fill(stream_, x.dtype, x.elements(), value, x.float_data());
}
void CudaOps::do_fill_normal(const NormalStream& values, int64_t first, int64_t pitch,
                             const Tensor& x) {
  cuda::fill_normal(stream_, {.key = values.key,
                              .stream = values.stream,
                              .factor = static_cast<float>(values.std),
                              .first = first,
                              .pitch = pitch,
                              .rows = x.dim(0),
                              .width = x.dim(1),
                              .dtype = x.dtype,
                              .x = x.float_data()});
}
void CudaOps::do_copy(const Tensor& from, const Tensor& to) {
  if (from.dtype != to.dtype)
    return convert(stream_, from.elements(), from.dtype, from.data, to.dtype, to.data);
  if (from.bytes() == 0) return;
  // CUDA derives the direction from the addresses.
  MUSTER_CUDA_CHECK(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDefault, stream_));
}
void CudaOps::do_add(const Tensor& x, const Tensor& delta, const Tensor& sum) {
  cuda::add(stream_, x.dtype, x.elements(), x.data, delta.data, sum.data);
}
void CudaOps::do_scale(double factor, const Tensor& x) {
  cuda::scale(stream_, x.dtype, x.elements(), static_cast<float>(factor), x.float_data());
}
void CudaOps::do_dropout(const DropoutMask& mask, const Tensor& x) {
  constexpr double kWords = 4294967296.0;  // 2^32
  const int64_t width = x.dim(x.rank - 1);
  cuda::dropout(
      stream_,
      {.dtype = x.dtype,
       .rows = rows_of(x),
       .width = width,
       .key = mask.key,
       .location = mask.location,
       .threshold = static_cast<uint32_t>(std::min(std::round(mask.rate * kWords), kWords - 1)),
       .factor = static_cast<float>(1 / (1 - mask.rate)),
       .elements = Elements::of(mask.elements, width),
       .x = x.float_data()});
}

double CudaOps::reduced(void (*kernel)(cudaStream_t, DType, int64_t, const void*, double*),
                        const Tensor& x) {
  auto* const partial = static_cast<double*>(sums_.data());  // in host memory
  kernel(stream_, x.dtype, x.elements(), x.float_data(), partial);
  synchronize();
  double total = 0;
  for (int64_t i = 0; i < reduction_blocks(x.elements()); ++i) total += partial[i];
  return total;
}
double CudaOps::do_sum(const Tensor& x) { return reduced(cuda::sum, x); }
double CudaOps::do_sum_of_squares(const Tensor& x) { return reduced(cuda::sum_of_squares, x); }

// Bias

void CudaOps::do_add_bias(const Tensor& bias, const Tensor& x) {
  const int64_t width = bias.elements();
  cuda::add_bias(stream_, x.dtype, x.elements() / width, width, bias.f32(), x.float_data());
}
void CudaOps::do_bias_backward(const Tensor& dx, const Tensor& dbias, Accumulate accumulate,
                               Workspace workspace) {
  const int64_t width = dbias.elements(), rows = dx.elements() / width;
  const int64_t blocks = std::min(kRowSumBlocks, rows);
  sum_rows(stream_, dx.dtype, rows, width, dx.float_data(), blocks, workspace.data);
  add_blocks(stream_, workspace.data, blocks, width, width, accumulate, dbias.f32());
}

// Norms

void CudaOps::do_norm(const NormShape& shape, const Tensor& x, const NormWeights& weights,
                      const Tensor& y, const Tensor& stats) {
  norm_rows(x.dtype, shape, x, nullptr, weights, nullptr, y, stats);
}
void CudaOps::do_add_norm(const NormShape& shape, const Tensor& x, const Tensor& delta,
                          const NormWeights& weights, const Tensor& sum, const Tensor& y,
                          const Tensor& stats) {
  norm_rows(x.dtype, shape, x, delta.data, weights, sum.data, y, stats);
}
void CudaOps::norm_rows(DType dtype, const NormShape& shape, const Tensor& x, const void* delta,
                        const NormWeights& weights, void* sum, const Tensor& y,
                        const Tensor& stats) {
  const int64_t width = weights.gain.elements(), rows = x.elements() / width;
  const bool layer = shape.type == NormType::kLayer;
  cuda::norm(stream_, {.dtype = dtype,
                       .type = shape.type,
                       .rows = rows,
                       .width = width,
                       .eps = static_cast<float>(shape.eps),
                       .gain_offset = static_cast<float>(shape.gain_offset),
                       .x = x.data,
                       .delta = delta,
                       .gain = weights.gain.f32(),
                       .bias = layer ? weights.bias.f32() : nullptr,
                       .sum = sum,
                       .y = y.data,
                       .stats = stats.f32()});
}
void CudaOps::do_norm_backward(const NormShape& shape, const Tensor& dy, const Tensor& x,
                               const NormWeights& weights, const Tensor& stats, const Tensor& dx,
                               const NormWeights& d_weights, Accumulate accumulate,
                               Workspace workspace) {
  const bool layer = shape.type == NormType::kLayer;
  const int64_t width = weights.gain.elements(), rows = x.elements() / width;
  const int64_t blocks = std::min(kRowSumBlocks, rows);
  cuda::norm_backward(stream_, {.dtype = dy.dtype,
                                .type = shape.type,
                                .rows = rows,
                                .width = width,
                                .gain_offset = static_cast<float>(shape.gain_offset),
                                .dy = dy.data,
                                .x = x.data,
                                .gain = weights.gain.f32(),
                                .stats = stats.f32(),
                                .dx = dx.data,
                                .blocks = blocks,
                                .partial = workspace.data});
  if (d_weights.gain.data == nullptr) return;
  const float* sums = workspace.data;
  add_blocks(stream_, sums, blocks, 2 * width, width, accumulate, d_weights.gain.f32());
  if (layer)
    add_blocks(stream_, sums + width, blocks, 2 * width, width, accumulate, d_weights.bias.f32());
}

// MLP

namespace {

ActivationArgs activation_rows(const MlpActivation& activation, const Tensor& in,
                               const Tensor& out) {
  const int64_t width = out.dim(out.rank - 1);
  return {.dtype = in.dtype,
          .kind = activation.kind,
          .gated = activation.gated,
          .rows = rows_of(out),
          .width = width,
          .in_width = activation.input_width(width),
          .in = in.data,
          .out = out.data,
          .d_in = nullptr};
}

}  // namespace

void CudaOps::do_activate(const MlpActivation& activation, const Tensor& in, const Tensor& out) {
  cuda::activate(stream_, activation_rows(activation, in, out));
}
void CudaOps::do_activate_backward(const MlpActivation& activation, const Tensor& dout,
                                   const Tensor& in, const Tensor& d_in) {
  ActivationArgs rows = activation_rows(activation, in, dout);
  rows.d_in = d_in.data;
  cuda::activate_backward(stream_, rows);
}

void CudaOps::do_copy_columns(const Tensor& from, int64_t from_column, const Tensor& to,
                              int64_t to_column, int64_t columns) {
  const int64_t from_width = from.dim(from.rank - 1), to_width = to.dim(to.rank - 1);
  cuda::copy_columns(stream_, {.rows = rows_of(from),
                               .columns = columns,
                               .from_type = from.dtype,
                               .from = at(from, from_column),
                               .from_width = from_width,
                               .to_type = to.dtype,
                               .to = mutable_at(to, to_column),
                               .to_width = to_width});
}

}  // namespace cuda

std::unique_ptr<Ops> cuda_ops(const CudaOptions& options) {
  return std::make_unique<cuda::CudaOps>(options);
}

}  // namespace muster::trainer
