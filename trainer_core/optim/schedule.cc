#include "trainer_core/optim/schedule.h"

#include <cmath>
#include <numbers>

namespace muster::trainer {

double learning_rate(const OptimizerConfig& config, int64_t step) {
  const int64_t total = config.schedule_steps;
  const auto warmup =
      static_cast<int64_t>(static_cast<double>(total) * config.warmup_steps_fraction);
  if (step >= total) return 0;
  if (step < warmup) {
    return config.learning_rate * static_cast<double>(step) / static_cast<double>(warmup);
  }
  const double progress = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  const double a = 0.5 * (std::cos(std::numbers::pi * progress) + 1);
  return config.learning_rate * a + config.learning_rate * config.final_fraction * (1 - a);
}

}  // namespace muster::trainer
