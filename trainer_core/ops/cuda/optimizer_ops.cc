// The CUDA backend's optimizers.
#include <algorithm>
#include <vector>

#include "trainer_core/ops/cuda/cuda_ops.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer::cuda {

void CudaOps::do_adam(const AdamStep& step, const Tensor& grads, const Tensor& params,
                      const Tensor& m, const Tensor& v) {
  cuda::adam(stream_, step, grads, params, m, v);
}

void CudaOps::do_adam_direction(const AdamStep& step, const Tensor& grads, const Tensor& m,
                                const Tensor& v) {
  cuda::adam_direction(stream_, step, grads, m, v);
}

void CudaOps::do_adafactor_direction(const AdafactorStep& step, const Tensor& grads,
                                     const Tensor& v) {
  adafactor(stream_, grads.elements(), step, grads.f32(), v.f32());
}

void CudaOps::do_add_squares(const Tensor& x, std::span<double> rows, std::span<double> columns) {
  const int64_t height = x.dim(0), width = x.dim(1);
  const int64_t blocks = std::min(kRowSumBlocks, height);
  // Sums of rows, then of columns per block of rows; first on the device, then copied to the host.
  std::vector<double> sums(static_cast<size_t>(height + blocks * width));
  auto* const on_device = scratch<double>(static_cast<int64_t>(sums.size()));
  squares(stream_, height, width, x.f32(), blocks, on_device, on_device + height);
  if (!sums.empty())
    MUSTER_CUDA_CHECK(cudaMemcpyAsync(sums.data(), on_device, sums.size() * sizeof(double),
                                      cudaMemcpyDeviceToHost, stream_));
  synchronize();
  for (size_t i = 0; i < rows.size(); ++i) rows[i] += sums[i];
  for (size_t at = rows.size(); at < sums.size(); ++at)
    columns[(at - rows.size()) % columns.size()] += sums[at];
}

void CudaOps::do_adafactor_factors(const AdafactorStep& step, std::span<const double> row_sums,
                                   std::span<const double> column_sums, const Tensor& rows,
                                   const Tensor& columns) {
  auto* const sums = scratch<double>(rows.elements() + columns.elements());
  const auto update = [&](std::span<const double> from, double* to, int64_t count,
                          const Tensor& means) {
    if (from.empty()) return;
    MUSTER_CUDA_CHECK(
        cudaMemcpyAsync(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream_));
    adafactor_means(stream_, means.elements(), step, count, to, means.f32());
  };
  update(row_sums, sums, columns.elements(), rows);
  update(column_sums, sums + rows.elements(), rows.elements(), columns);
  synchronize();  // the caller may reuse the sums
}

void CudaOps::do_adafactor_factored_direction(const AdafactorStep& step, const Tensor& grads,
                                              const Tensor& rows, int64_t first_row,
                                              const Tensor& columns, int64_t first_column) {
  factored_direction(stream_, {.rows = grads.dim(0),
                               .width = grads.dim(1),
                               .grad_scale = static_cast<float>(step.grad_scale),
                               .mean = sum(rows) / static_cast<double>(rows.elements()),
                               .grads = grads.f32(),
                               .row_means = rows.f32() + first_row,
                               .column_means = columns.f32() + first_column});
}

void CudaOps::do_apply_update(double rate, double kept, const Tensor& direction,
                              const Tensor& params) {
  cuda::apply_update(stream_, static_cast<float>(rate), static_cast<float>(kept), direction.f32(),
                     params);
}

}  // namespace muster::trainer::cuda
