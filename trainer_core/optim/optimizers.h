// Makers of the optimizers of optimizer.h, and what their files share.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trainer_core/optim/optimizer.h"

namespace muster::trainer {

std::unique_ptr<Optimizer> make_adamw(const OptimizerConfig& config,
                                      const std::vector<ParamSpec>& table);
std::unique_ptr<Optimizer> make_adam_pax(const OptimizerConfig& config,
                                         const std::vector<ParamSpec>& table);
std::unique_ptr<Optimizer> make_sgd(const std::vector<ParamSpec>& table);
std::unique_ptr<Optimizer> make_adafactor(const std::vector<ParamSpec>& table);

// Elements [begin, begin + count) of a block.
inline Tensor part(std::span<float> block, int64_t begin, int64_t count) {
  return Tensor::f32(block.data() + begin, {count});
}

// Root of the mean square. Waits for the backend.
double rms(Ops& ops, const Tensor& x);

}  // namespace muster::trainer
