// The CUDA backend's losses.
#include "trainer_core/ops/cuda/cuda_ops.h"

namespace muster::trainer::cuda {
namespace {

LogitSlice slice_of(const LossShape& shape, const VocabularySlice& slice, const Tensor& logits,
                    const Tensor& targets, float* sums, FaultWord fault) {
  return {.rows = logits.dim(0),
          .width = logits.dim(1),
          .first = slice.first,
          .limit = slice.ids(logits.dim(1)),
          .soft_cap = static_cast<float>(shape.soft_cap),
          .logits = logits.f32(),
          .targets = targets.i32(),
          .sums = sums,
          .fault = fault};
}

SlicedLoss loss_of(const LossShape& shape, const Tensor& sums, const Tensor& weights,
                   const Tensor& losses) {
  const int64_t rows = weights.elements();
  const int64_t slices = rows == 0 ? 0 : sums.elements() / (rows * kLogitSums);
  return {rows, slices, shape.z_loss, sums.f32(), weights.f32(), losses.f32()};
}

}  // namespace

void CudaOps::do_soft_cap(double cap, const Tensor& x) {
  cuda::soft_cap(stream_, x.elements(), static_cast<float>(cap), x.f32());
}

void CudaOps::do_cross_entropy(const LossShape& shape, const Tensor& logits, const Tensor& targets,
                               const Tensor& weights, const Tensor& losses) {
  loss(shape, logits, targets, weights, losses, {});
}
void CudaOps::do_cross_entropy_backward(const LossShape& shape, const Tensor& logits,
                                        const Tensor& targets, const Tensor& weights,
                                        const Tensor& losses, const Tensor& gradient) {
  loss(shape, logits, targets, weights, losses, gradient);
}

void CudaOps::loss(const LossShape& shape, const Tensor& logits, const Tensor& targets,
                   const Tensor& weights, const Tensor& losses, const Tensor& gradient) {
  const int64_t rows = logits.dim(0);
  cuda::cross_entropy(stream_, {.rows = rows,
                                .vocab = logits.dim(1),
                                .soft_cap = static_cast<float>(shape.soft_cap),
                                .z_loss = shape.z_loss,
                                .logits = logits.f32(),
                                .targets = targets.i32(),
                                .weights = weights.f32(),
                                .losses = losses.f32(),
                                .gradient_type = gradient.dtype,
                                .gradient = gradient.data,
                                .fault = fault()});
}

void CudaOps::do_logit_sums(const LossShape& shape, const VocabularySlice& slice,
                            const Tensor& logits, const Tensor& targets, const Tensor& sums) {
  cuda::logit_sums(stream_, slice_of(shape, slice, logits, targets, sums.f32(), fault()));
}

void CudaOps::do_sliced_cross_entropy(const LossShape& shape, const Tensor& sums,
                                      const Tensor& weights, const Tensor& losses) {
  sliced_loss(stream_, loss_of(shape, sums, weights, losses));
}

void CudaOps::do_sliced_cross_entropy_backward(const LossShape& shape, const VocabularySlice& slice,
                                               const Tensor& logits, const Tensor& targets,
                                               const Tensor& sums, const Tensor& weights,
                                               const Tensor& losses, const Tensor& gradient) {
  LogitSlice own = slice_of(shape, slice, logits, targets, nullptr, fault());
  own.gradient_type = gradient.dtype;
  own.gradient = gradient.data;
  const SlicedLoss args = loss_of(shape, sums, weights, losses);
  sliced_loss(stream_, args);
  sliced_gradient(stream_, args, own);
}

}  // namespace muster::trainer::cuda
