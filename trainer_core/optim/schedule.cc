#include "trainer_core/optim/schedule.h"

#include <cmath>
#include <numbers>

#include "trainer_core/base/check.h"

namespace muster::trainer {
namespace {

double linear(double progress, double end) { return 1 - progress * (1 - end); }

double cosine(double progress, double end) {
  const double a = 0.5 * (std::cos(std::numbers::pi * progress) + 1);
  return a + end * (1 - a);
}

// (step - first) / length
double share(int64_t step, int64_t first, int64_t length) {
  return static_cast<double>(step - first) / static_cast<double>(length);
}

double wsd(const OptimizerConfig& config, int64_t step) {
  if (step < config.decay_start) return 1;
  const int64_t decay_steps = config.decay_end - config.decay_start;
  const double progress = decay_steps > 1 ? share(step, config.decay_start, decay_steps - 1) : 1;
  return config.wsd_decay_style == DecayStyle::kLinear ? linear(progress, config.final_fraction)
                                                       : cosine(progress, config.final_fraction);
}

// Returns the fraction of learning_rate after the warm-up.
double share_of_rate(const OptimizerConfig& config, int64_t step) {
  const double end = config.final_fraction;
  const int64_t total = config.schedule_steps, warmup = config.warmup_steps;
  const bool decays = step >= config.decay_start;
  const auto decay_progress = [&] {
    return share(step, config.decay_start, config.decay_end - config.decay_start);
  };
  switch (config.schedule) {
    case ScheduleType::kCosine:
      return cosine(share(step, warmup, total - warmup), end);
    case ScheduleType::kConstant:
      return 1;
    case ScheduleType::kWsd:
      return wsd(config, step);
    case ScheduleType::kRampupCosine:
      if (step >= config.decay_end) return end;
      return decays ? cosine(decay_progress(), end) : 1;
    case ScheduleType::kRampupExponential:
      if (step >= config.decay_end) return end;
      return decays ? std::pow(end, decay_progress()) : 1;
  }
  MUSTER_CHECK(false) << "a schedule without a case";
  return 0;
}

// Returns whether the schedule has ended. MaxText's schedules end at T, even during the warm-up.
bool has_ended(const OptimizerConfig& config, int64_t step) {
  const bool ends =
      config.schedule == ScheduleType::kCosine || config.schedule == ScheduleType::kWsd;
  return ends && step >= config.schedule_steps;
}

}  // namespace

double learning_rate(const OptimizerConfig& config, int64_t step) {
  if (has_ended(config, step)) return 0;
  if (step < config.warmup_steps)
    return config.learning_rate * static_cast<double>(step) /
           static_cast<double>(config.warmup_steps);
  return config.learning_rate * share_of_rate(config, step);
}

}  // namespace muster::trainer
