#include "trainer_core/optim/adamw.h"

#include <cmath>

#include "trainer_core/base/check.h"

namespace muster::trainer {

void adamw_update(Ops& ops, const std::vector<ParamSpec>& table, const OptimizerConfig& config,
                  double learning_rate, double grad_scale, int64_t t, const AdamWBlocks& blocks) {
  const auto n = static_cast<size_t>(parameter_count(table));
  MUSTER_CHECK(blocks.params.size() == n && blocks.grads.size() == n && blocks.m.size() == n &&
               blocks.v.size() == n && t >= 1)
      << "blocks of " << blocks.params.size() << " for " << n << " parameters, update " << t;
  AdamWStep step{.learning_rate = learning_rate,
                 .b1 = config.b1,
                 .b2 = config.b2,
                 .eps = config.eps,
                 .eps_root = config.eps_root,
                 .weight_decay = 0,
                 .grad_scale = grad_scale,
                 .bias_correction1 = 1 - std::pow(config.b1, static_cast<double>(t)),
                 .bias_correction2 = 1 - std::pow(config.b2, static_cast<double>(t))};
  // Rows are packed: neighbours with the same decay are one call.
  for (size_t first = 0; first < table.size();) {
    size_t last = first;
    while (last + 1 < table.size() && table[last + 1].decay == table[first].decay) ++last;
    const int64_t begin = table[first].offset;
    const int64_t count = table[last].offset + table[last].elements() - begin;
    step.weight_decay = table[first].decay ? config.weight_decay : 0;
    // The table of ops takes plain views; adamw only reads the gradients.
    ops.adamw(step, Tensor::f32(const_cast<float*>(blocks.grads.data()) + begin, {count}),
              Tensor::f32(blocks.params.data() + begin, {count}),
              Tensor::f32(blocks.m.data() + begin, {count}),
              Tensor::f32(blocks.v.data() + begin, {count}));
    first = last + 1;
  }
}

double clip_factor(double global_norm, double threshold) {
  if (threshold <= 0 || global_norm <= threshold) return 1;
  return threshold / global_norm;
}

}  // namespace muster::trainer
