#include "trainer_core/parallel/vocab_loss.h"

#include "trainer_core/base/tensor_views.h"

namespace muster::trainer {
namespace {

// Returns the part of rows.sums for exactly these rows.
Tensor sums_of(const ProcessGroup& group, const SlicedLogits& rows) {
  return tensor_at(rows.sums, 0, {group.size(), rows.targets.elements(), kLogitSums});
}

absl::Status gather_sums(Ops& ops, ProcessGroup& group, const LossShape& shape,
                         const SlicedLogits& rows, std::string_view name) {
  const int64_t count = rows.targets.elements();
  const Tensor sums = sums_of(group, rows);
  const Tensor own = tensor_at(sums, group.rank() * count * kLogitSums, {count, kLogitSums});
  ops.logit_sums(shape, rows.slice, rows.logits, rows.targets, own);
  return group.all_gather(own, sums, name);
}

}  // namespace

absl::Status vocabulary_loss(Ops& ops, ProcessGroup& group, const LossShape& shape,
                             const SlicedLogits& rows, std::string_view name) {
  if (absl::Status status = gather_sums(ops, group, shape, rows, name); !status.ok()) return status;
  ops.sliced_cross_entropy(shape, sums_of(group, rows), rows.weights, rows.losses);
  return absl::OkStatus();
}

absl::Status vocabulary_loss_backward(Ops& ops, ProcessGroup& group, const LossShape& shape,
                                      const SlicedLogits& rows, std::string_view name) {
  if (absl::Status status = gather_sums(ops, group, shape, rows, name); !status.ok()) return status;
  ops.sliced_cross_entropy_backward(shape, rows.slice, rows.logits, rows.targets,
                                    sums_of(group, rows), rows.weights, rows.losses, rows.d_logits);
  return absl::OkStatus();
}

}  // namespace muster::trainer
