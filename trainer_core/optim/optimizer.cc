#include "trainer_core/optim/optimizer.h"

#include <cmath>
#include <utility>

#include "trainer_core/base/check.h"
#include "trainer_core/optim/optimizers.h"

namespace muster::trainer {

std::unique_ptr<Optimizer> Optimizer::make(const OptimizerConfig& config,
                                           const std::vector<ParamSpec>& table) {
  switch (config.type) {
    case OptimizerType::kAdamW:
      return make_adamw(config, table);
    case OptimizerType::kAdamPax:
      return make_adam_pax(config, table);
    case OptimizerType::kSgd:
      return make_sgd(table);
    case OptimizerType::kAdafactor:
      return make_adafactor(table);
  }
  MUSTER_CHECK(false) << "an optimizer without a case";
  return nullptr;
}

int64_t Optimizer::state_elements() const {
  return state_.empty() ? 0 : state_.back().offset + state_.back().elements();
}

void Optimizer::add_state(const std::string& what, const ParamSpec& spec) {
  add_state(what, spec, spec.shape);
}

void Optimizer::add_state(const std::string& what, const ParamSpec& spec,
                          std::vector<int64_t> shape) {
  state_.push_back({what + "." + spec.name, std::move(shape), state_elements()});
}

void Optimizer::update(Ops& ops, const UpdateStep& step, const UpdateBlocks& blocks) const {
  const auto n = static_cast<size_t>(parameter_count(table_));
  MUSTER_CHECK(blocks.params.size() == n && blocks.grads.size() == n &&
               blocks.state.size() == static_cast<size_t>(state_elements()) && step.t >= 1)
      << "blocks of " << blocks.params.size() << ", " << blocks.grads.size() << " and "
      << blocks.state.size() << " for " << n << " parameters and " << state_elements()
      << " of state, update " << step.t;
  apply(ops, step, blocks);
}

double rms(Ops& ops, const Tensor& x) {
  return std::sqrt(ops.sum_of_squares(x) / static_cast<double>(x.elements()));
}

double clip_factor(double global_norm, double threshold) {
  if (threshold <= 0 || global_norm <= threshold) return 1;
  return threshold / global_norm;
}

}  // namespace muster::trainer
