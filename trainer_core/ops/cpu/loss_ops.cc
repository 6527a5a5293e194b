#include "trainer_core/ops/cpu/loss_ops.h"

#include "trainer_core/ops/cpu/checks.h"
#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/parallel.h"

namespace muster::trainer::cpu {
namespace {

LogitSlice slice_of(const LossShape& shape, const VocabularySlice& slice, const Tensor& logits,
                    const Tensor& targets) {
  check_size(targets, logits.dim(0), "targets");
  check_ids(targets, slice.ids(logits.dim(1)), "target");
  return {slice.first, logits.dim(1), static_cast<float>(shape.soft_cap), logits.f32(),
          targets.i32()};
}

SlicedLoss sliced_loss(const LossShape& shape, const Tensor& sums, const Tensor& weights,
                       const Tensor& losses) {
  const int64_t rows = weights.elements(), slices = sums.elements() / (rows * kLogitSums);
  check_size(losses, rows, "losses");
  check_size(sums, slices * rows * kLogitSums, "sums of logits");
  return {rows, slices, shape.z_loss, sums.f32(), weights.f32(), losses.f32()};
}

}  // namespace

void CpuLossOps::soft_cap(double cap, const Tensor& x) {
  const int64_t n = x.elements();
  parallel_for(useful_threads(threads_, n), n, [&](int64_t begin, int64_t end, int) {
    soft_cap_range(end - begin, static_cast<float>(cap), x.f32() + begin);
  });
}

void CpuLossOps::cross_entropy(const LossShape& shape, const Tensor& logits, const Tensor& targets,
                               const Tensor& weights, const Tensor& losses) {
  loss(shape, logits, targets, weights, losses, false);
}
void CpuLossOps::cross_entropy_backward(const LossShape& shape, const Tensor& logits,
                                        const Tensor& targets, const Tensor& weights,
                                        const Tensor& losses) {
  loss(shape, logits, targets, weights, losses, true);
}

void CpuLossOps::loss(const LossShape& shape, const Tensor& logits, const Tensor& targets,
                      const Tensor& weights, const Tensor& losses, bool gradient) {
  const int64_t rows = logits.dim(0), vocab = logits.dim(1);
  check_size(targets, rows, "targets");
  check_size(weights, rows, "weights");
  check_size(losses, rows, "losses");
  check_ids(targets, vocab, "target");
  const CrossEntropy args{vocab,         static_cast<float>(shape.soft_cap),
                          shape.z_loss,  logits.f32(),
                          targets.i32(), weights.f32(),
                          losses.f32(),  gradient};
  parallel_for(useful_threads(threads_, logits.elements()), rows,
               [&](int64_t begin, int64_t end, int) { cross_entropy_rows(begin, end, args); });
}

void CpuLossOps::logit_sums(const LossShape& shape, const VocabularySlice& slice,
                            const Tensor& logits, const Tensor& targets, const Tensor& sums) {
  const LogitSlice args = slice_of(shape, slice, logits, targets);
  check_size(sums, logits.dim(0) * kLogitSums, "sums of logits");
  parallel_for(
      useful_threads(threads_, logits.elements()), logits.dim(0),
      [&](int64_t begin, int64_t end, int) { logit_sums_rows(begin, end, args, sums.f32()); });
}

void CpuLossOps::sliced_cross_entropy(const LossShape& shape, const Tensor& sums,
                                      const Tensor& weights, const Tensor& losses) {
  const SlicedLoss args = sliced_loss(shape, sums, weights, losses);
  parallel_for(useful_threads(threads_, sums.elements()), args.rows,
               [&](int64_t begin, int64_t end, int) { sliced_loss_rows(begin, end, args); });
}

void CpuLossOps::sliced_cross_entropy_backward(const LossShape& shape, const VocabularySlice& slice,
                                               const Tensor& logits, const Tensor& targets,
                                               const Tensor& sums, const Tensor& weights,
                                               const Tensor& losses) {
  const LogitSlice own = slice_of(shape, slice, logits, targets);
  const SlicedLoss args = sliced_loss(shape, sums, weights, losses);
  check_size(weights, logits.dim(0), "weights");
  parallel_for(useful_threads(threads_, logits.elements()), args.rows,
               [&](int64_t begin, int64_t end, int) {
                 sliced_loss_rows(begin, end, args);
                 sliced_gradient_rows(begin, end, args, own);
               });
}

}  // namespace muster::trainer::cpu
