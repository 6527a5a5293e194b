#include "trainer_core/optim/optimizer.h"

#include <utility>

#include "trainer_core/base/check.h"
#include "trainer_core/optim/optimizer_factories.h"

namespace muster::trainer {

std::unique_ptr<Optimizer> Optimizer::make(const OptimizerConfig& config, ShardLayout layout) {
  switch (config.type) {
    case OptimizerType::kAdamW:
      return make_adamw(config, std::move(layout));
    case OptimizerType::kAdamPax:
      return make_adam_pax(config, std::move(layout));
    case OptimizerType::kSgd:
      return make_sgd(std::move(layout));
    case OptimizerType::kAdafactor:
      return make_adafactor(std::move(layout));
  }
  MUSTER_CHECK(false) << "an optimizer without a case";
  return nullptr;
}

int64_t Optimizer::add_state_like_parameters(const std::string& what, DType dtype) {
  const auto in_one = static_cast<int64_t>(sizeof(float) / dtype_bytes(dtype));
  const int64_t begin = state_elements_ * in_one;
  int64_t alone = 0;  // bytes of all earlier state tensors on a single rank
  if (!state_.tensors.empty()) {
    const TensorRow& last = state_.tensors.back();
    alone = (last.offset + last.elements()) * static_cast<int64_t>(dtype_bytes(last.dtype));
  }
  constexpr int64_t kFloat = sizeof(float);
  alone = (alone + kFloat - 1) / kFloat * in_one;
  for (const ParamSpec& spec : layout_.table())
    state_.tensors.push_back({what + "." + spec.name, spec.shape, alone + spec.offset, dtype});
  for (TensorBox& box : layout_.stored_boxes()) {
    box.tensor = what + "." + box.tensor;
    box.offset += begin;
    box.dtype = dtype;
    state_.held.push_back(box);
    state_.written.push_back(std::move(box));
  }
  state_elements_ += (layout_.elements() + in_one - 1) / in_one;
  return begin;
}

absl::Status Optimizer::update(Ops& ops, const UpdateStep& step, const UpdateBlocks& blocks,
                               SumExchange* exchange) {
  const auto n = static_cast<size_t>(layout_.elements());
  MUSTER_CHECK(blocks.params.elements() == layout_.elements() &&
               blocks.params.dtype == layout_.stored() && blocks.grads.size() == n &&
               blocks.state.size() == static_cast<size_t>(state_elements_) && step.t >= 1)
      << "blocks of " << blocks.params.elements() << ", " << blocks.grads.size() << " and "
      << blocks.state.size() << " for " << n << " parameters and " << state_elements_
      << " of state, update " << step.t;
  return apply(ops, step, blocks, exchange);
}

double clip_factor(double global_norm, double threshold) {
  if (threshold <= 0 || global_norm <= threshold) return 1;
  return threshold / global_norm;
}

}  // namespace muster::trainer
