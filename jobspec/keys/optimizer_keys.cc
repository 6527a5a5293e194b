#include "jobspec/keys/optimizer_keys.h"

#include <initializer_list>
#include <string>
#include <string_view>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::jobspec {
namespace {

using trainer::OptimizerConfig;
using trainer::OptimizerType;
using trainer::ScheduleType;

class WithoutEffect {
 public:
  WithoutEffect(const SettingsReader& reader, std::string_view because,
                std::vector<std::string>& warnings)
      : reader_(reader), because_(because), warnings_(warnings) {}

  void operator()(std::initializer_list<std::string_view> keys) const {
    for (const std::string_view key : keys) {
      if (!reader_.is_set_by_user(key)) continue;
      warnings_.push_back(absl::StrCat(av(key), " has no effect: ", av(because_)));
    }
  }

 private:
  const SettingsReader& reader_;
  std::string because_;
  std::vector<std::string>& warnings_;
};

void warn_of_optimizer(const SettingsReader& reader, const OptimizerConfig& optimizer,
                       std::vector<std::string>& warnings) {
  const OptimizerType type = optimizer.type;
  const WithoutEffect without(
      reader, absl::StrCat("opt_type is ", av(name_of(trainer::kOptimizerNames, type))), warnings);
  const bool is_adam = type == OptimizerType::kAdamW || type == OptimizerType::kAdamPax;
  if (!is_adam) {
    without({"adam_b1", "adam_b2", "adam_eps", "adam_eps_root", "adam_weight_decay",
             "weight_decay_times_learning_rate", "mu_dtype", "mu_stochastic_rounding"});
  }
  if (type != OptimizerType::kAdamW) without({"adamw_mask"});
  if (type != OptimizerType::kAdamPax) without({"adam_clip_threshold"});
  if (is_adam && optimizer.mu_dtype == trainer::ComputeType::kFloat32)
    WithoutEffect(reader, "mu_dtype is float32", warnings)({"mu_stochastic_rounding"});
}

// If both are -1, neither can be inferred.
void read_steps(SettingsReader& reader, trainer::TrainConfig& train) {
  train.steps = 150'001;
  train.optimizer.schedule_steps = -1;
  reader.read("steps", train.steps);
  reader.read("learning_rate_schedule_steps", train.optimizer.schedule_steps);
  reader.require(train.steps != -1 || train.optimizer.schedule_steps != -1, "steps",
                 "learning_rate_schedule_steps is also -1; set one of them");
  if (train.steps == -1) train.steps = train.optimizer.schedule_steps;
  if (train.optimizer.schedule_steps == -1) train.optimizer.schedule_steps = train.steps;
  reader.require(train.steps >= 1, "steps",
                 train.steps == 0
                     ? "must be at least 1, or -1; eval_only=true evaluates a checkpoint and "
                       "trains nothing"
                     : "must be at least 1, or -1");
}

int64_t read_share(SettingsReader& reader, std::string_view key, int64_t total) {
  double fraction = 0.1;
  reader.read(key, fraction);
  const bool fits = fraction >= 0 && fraction <= 1;
  reader.require(fits, key, "must be between 0 and 1");
  return fits ? static_cast<int64_t>(static_cast<double>(total) * fraction) : 0;
}

// -1: unset.
int64_t read_steps_or_none(SettingsReader& reader, std::string_view key) {
  int64_t steps = -1;
  reader.read(key, steps);
  reader.require(steps >= -1, key, "must be a number of steps, or -1");
  return steps;
}

void read_warmup(SettingsReader& reader, OptimizerConfig& optimizer) {
  constexpr std::string_view kSteps = "learning_rate_warmup_steps";
  constexpr std::string_view kFraction = "warmup_steps_fraction";
  const int64_t steps = read_steps_or_none(reader, kSteps);
  const int64_t share = read_share(reader, kFraction, optimizer.schedule_steps);
  const bool wants_steps = reader.is_set_by_user(kSteps) && steps >= 0;
  reader.require(!wants_steps || !reader.is_set_by_user(kFraction), kSteps,
                 "warmup_steps_fraction is also set; set only one of the two");
  // A user's fraction overrides a preset's steps.
  optimizer.warmup_steps = steps < 0 || reader.is_set_by_user(kFraction) ? share : steps;
}

void read_wsd(SettingsReader& reader, OptimizerConfig& optimizer) {
  const int64_t total = optimizer.schedule_steps;
  const int64_t decay = read_share(reader, "wsd_decay_steps_fraction", total);
  reader.require(
      decay + optimizer.warmup_steps <= total, "wsd_decay_steps_fraction",
      absl::StrCat("a warm-up of ", optimizer.warmup_steps, " steps and a decay of ", decay,
                   " do not fit in the schedule's ", total, " (learning_rate_schedule_steps)"));
  optimizer.decay_start = total - decay;
  optimizer.decay_end = total;
  reader.read_choice("wsd_decay_style", trainer::kDecayStyleNames, optimizer.wsd_decay_style);
}

// A longer warm-up overrides a preset's start.
void read_decay(SettingsReader& reader, OptimizerConfig& optimizer,
                std::vector<std::string>& warnings) {
  constexpr std::string_view kStart = "learning_rate_decay_start";
  const int64_t start = read_steps_or_none(reader, kStart);
  const int64_t end = read_steps_or_none(reader, "learning_rate_decay_end");
  const int64_t warmup = optimizer.warmup_steps;
  optimizer.decay_start = start;
  optimizer.decay_end = end >= 0 ? end : optimizer.schedule_steps;
  const bool is_free = start < 0 || !reader.is_set_by_user(kStart);
  if (!is_free || start >= warmup) return;
  // A warm-up of all steps leaves no steps for the decay.
  optimizer.decay_start = warmup + (optimizer.decay_end > warmup ? 1 : 0);
  if (start < 0) return;
  warnings.push_back(absl::StrCat(av(kStart), " is ", optimizer.decay_start, " instead of ", start,
                                  ": the decay follows the warm-up of ", warmup, " steps"));
}

void warn_of_long_warmup(const trainer::TrainConfig& train, std::vector<std::string>& warnings) {
  if (train.optimizer.warmup_steps <= train.steps) return;
  warnings.push_back(absl::StrCat("the warm-up of ", train.optimizer.warmup_steps,
                                  " steps is longer than steps=", train.steps,
                                  ": learning_rate is never reached; "
                                  "learning_rate_warmup_steps=0 trains without a warm-up"));
}

}  // namespace

void read_optimizer(SettingsReader& reader, OptimizerConfig& optimizer,
                    std::vector<std::string>& warnings) {
  reader.read_choice("opt_type", trainer::kOptimizerNames, optimizer.type);
  reader.read("learning_rate", optimizer.learning_rate);
  reader.read("adam_b1", optimizer.b1);
  reader.read("adam_b2", optimizer.b2);
  reader.read("adam_eps", optimizer.eps);
  reader.read("adam_eps_root", optimizer.eps_root);
  reader.read("adam_weight_decay", optimizer.weight_decay);
  reader.read("weight_decay_times_learning_rate", optimizer.decay_times_learning_rate);
  reader.read("adamw_mask", optimizer.adamw_mask);
  if (std::string mu = ""; reader.read("mu_dtype", mu), !mu.empty())
    reader.read_choice("mu_dtype", trainer::kComputeTypeNames, optimizer.mu_dtype);
  reader.read("mu_stochastic_rounding", optimizer.mu_stochastic_rounding);
  reader.read("adam_clip_threshold", optimizer.update_clip);
  reader.read("gradient_clipping_threshold", optimizer.clipping_threshold);
  warn_of_optimizer(reader, optimizer, warnings);
}

void read_schedule(SettingsReader& reader, trainer::TrainConfig& train,
                   std::vector<std::string>& warnings) {
  read_steps(reader, train);
  OptimizerConfig& optimizer = train.optimizer;
  reader.read_choice("lr_schedule_type", trainer::kScheduleNames, optimizer.schedule);
  reader.read("learning_rate_final_fraction", optimizer.final_fraction);
  read_warmup(reader, optimizer);
  const WithoutEffect without(
      reader,
      absl::StrCat("lr_schedule_type is ",
                   av(name_of(trainer::kScheduleNames, optimizer.schedule))),
      warnings);
  const bool is_wsd = optimizer.schedule == ScheduleType::kWsd;
  const bool is_paxs = optimizer.schedule == ScheduleType::kRampupCosine ||
                       optimizer.schedule == ScheduleType::kRampupExponential;
  if (is_wsd) read_wsd(reader, optimizer);
  if (is_paxs) read_decay(reader, optimizer, warnings);
  if (!is_wsd) without({"wsd_decay_steps_fraction", "wsd_decay_style"});
  if (!is_paxs) without({"learning_rate_decay_start", "learning_rate_decay_end"});
  if (optimizer.schedule == ScheduleType::kConstant) without({"learning_rate_final_fraction"});
  warn_of_long_warmup(train, warnings);
}

}  // namespace muster::jobspec
