// Keys of the optimizer and the schedule, from base.yml and the command line to the trainer's
// config.
#include "jobspec/keys/optimizer_keys.h"

#include <gmock/gmock.h>

#include "jobspec/resolve_step.h"
#include "tests/unit/jobspec/config_files.h"

namespace muster::jobspec {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using trainer::OptimizerConfig;
using trainer::OptimizerType;
using trainer::ScheduleType;

class OptimizerKeys : public ConfigFiles {
 protected:
  static OptimizerConfig optimizer_of(const std::vector<std::string>& overrides) {
    const auto job = resolve(overrides);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? job->train.optimizer : OptimizerConfig();
  }
  static std::vector<std::string> warnings_of(const std::vector<std::string>& overrides) {
    const auto job = resolve(overrides);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? job->warnings : std::vector<std::string>();
  }
};

TEST_F(OptimizerKeys, FractionsBecomeSteps) {
  EXPECT_EQ(optimizer_of({"steps=1000"}).warmup_steps, 100);
  EXPECT_EQ(optimizer_of({"steps=15"}).warmup_steps, 1);  // int(1.5)
  const OptimizerConfig wsd =
      optimizer_of({"lr_schedule_type=wsd", "steps=1000", "wsd_decay_steps_fraction=0.2055",
                    "wsd_decay_style=cosine"});
  EXPECT_EQ(wsd.schedule, ScheduleType::kWsd);
  EXPECT_EQ(wsd.decay_start, 1000 - 205);
  EXPECT_EQ(wsd.decay_end, 1000);
  EXPECT_EQ(wsd.wsd_decay_style, trainer::DecayStyle::kCosine);
  EXPECT_THAT(error_of(resolve({"lr_schedule_type=wsd", "steps=100", "warmup_steps_fraction=0.6",
                                "wsd_decay_steps_fraction=0.5"})),
              AllOf(HasSubstr("wsd_decay_steps_fraction=0.5"), HasSubstr("a warm-up of 60 steps"),
                    HasSubstr("a decay of 50"), HasSubstr("100")));
  EXPECT_THAT(error_of(resolve({"warmup_steps_fraction=1.5"})),
              HasSubstr("warmup_steps_fraction=1.5: must be between 0 and 1"));
}

TEST_F(OptimizerKeys, AWarmUpInSteps) {
  EXPECT_EQ(optimizer_of({"learning_rate_warmup_steps=7"}).warmup_steps, 7);
  EXPECT_EQ(optimizer_of({"model_name=fuji-7B-v2", "steps=10"}).warmup_steps, 2000);
  // A user's fraction overrides a preset's steps; if the user sets both, they are a contradiction.
  EXPECT_EQ(optimizer_of({"model_name=fuji-7B-v2", "warmup_steps_fraction=0.5"}).warmup_steps,
            262'144);
  EXPECT_THAT(error_of(resolve({"learning_rate_warmup_steps=7", "warmup_steps_fraction=0.5"})),
              AllOf(HasSubstr("learning_rate_warmup_steps=7"), HasSubstr("warmup_steps_fraction")));
  EXPECT_THAT(error_of(resolve({"learning_rate_warmup_steps=-2"})), HasSubstr("or -1"));
}

TEST_F(OptimizerKeys, PaxDecayFollowsTheWarmUp) {
  const OptimizerConfig plain = optimizer_of(
      {"lr_schedule_type=linear_rampup_cosine_decay", "learning_rate_warmup_steps=7", "steps=50"});
  EXPECT_EQ(plain.decay_start, 8);
  EXPECT_EQ(plain.decay_end, 50);
  EXPECT_THAT(error_of(resolve({"lr_schedule_type=linear_rampup_cosine_decay",
                                "learning_rate_decay_start=9", "learning_rate_decay_end=8",
                                "learning_rate_warmup_steps=2"})),
              AllOf(HasSubstr("learning_rate_decay_end is 8"), HasSubstr("(9)")));
  EXPECT_THAT(error_of(resolve({"lr_schedule_type=linear_rampup_exponential_decay",
                                "learning_rate_final_fraction=0"})),
              HasSubstr("learning_rate_final_fraction is 0"));
}

TEST_F(OptimizerKeys, TheWarmUpOverridesAPresetsDecay) {
  const OptimizerConfig share =
      optimizer_of({"model_name=GPT126M", "steps=100000", "warmup_steps_fraction=0.1"});
  EXPECT_EQ(share.warmup_steps, 10'000);
  EXPECT_EQ(share.decay_start, 10'001);
  EXPECT_EQ(share.decay_end, 500'000);
  const std::vector<std::string> steps = {"model_name=GPT126M", "learning_rate_warmup_steps=700"};
  EXPECT_EQ(optimizer_of(steps).decay_start, 701);
  EXPECT_THAT(warnings_of(steps), Contains("learning_rate_decay_start is 701 instead of 637: the "
                                           "decay follows the warm-up of 700 steps"));
  const std::vector<std::string> shorter = {"model_name=GPT126M", "learning_rate_warmup_steps=9"};
  EXPECT_EQ(optimizer_of(shorter).decay_start, 637);
  EXPECT_THAT(error_of(resolve({"model_name=GPT126M", "learning_rate_warmup_steps=700",
                                "learning_rate_decay_start=637"})),
              AllOf(HasSubstr("learning_rate_decay_start is 637"), HasSubstr("(700)")));
  EXPECT_THAT(error_of(resolve({"model_name=GPT126M", "learning_rate_warmup_steps=600000"})),
              AllOf(HasSubstr("learning_rate_decay_end is 500000"), HasSubstr("(600000)")));
  const OptimizerConfig all = optimizer_of(
      {"lr_schedule_type=linear_rampup_cosine_decay", "steps=10", "warmup_steps_fraction=1"});
  EXPECT_EQ(all.decay_start, 10);
  EXPECT_EQ(all.decay_end, 10);
}

TEST_F(OptimizerKeys, TheFirstMomentMayBeBfloat16) {
  EXPECT_EQ(optimizer_of({"mu_dtype="}).mu_dtype, trainer::ComputeType::kFloat32);
  EXPECT_EQ(optimizer_of({"mu_dtype=", "weight_dtype=bfloat16"}).mu_dtype,
            trainer::ComputeType::kBfloat16);
  EXPECT_EQ(optimizer_of({"mu_dtype=float32", "weight_dtype=bfloat16"}).mu_dtype,
            trainer::ComputeType::kFloat32);
  const std::vector<std::string> half = {"mu_dtype=bfloat16", "mu_stochastic_rounding=true"};
  EXPECT_EQ(optimizer_of(half).mu_dtype, trainer::ComputeType::kBfloat16);
  EXPECT_TRUE(optimizer_of(half).mu_stochastic_rounding);
  EXPECT_THAT(error_of(resolve({"mu_dtype=float16"})),
              AllOf(HasSubstr("mu_dtype"), HasSubstr("float16"), HasSubstr("bfloat16")));
  EXPECT_THAT(warnings_of({"mu_stochastic_rounding=true"}),
              Contains("mu_stochastic_rounding has no effect: mu_dtype is float32"));
  EXPECT_THAT(warnings_of({"opt_type=sgd", "mu_dtype=bfloat16"}),
              Contains("mu_dtype has no effect: opt_type is sgd"));
}

TEST_F(OptimizerKeys, AWarmUpLongerThanTheRun) {
  EXPECT_THAT(warnings_of({"learning_rate_warmup_steps=11", "steps=10"}),
              Contains(AllOf(HasSubstr("warm-up of 11 steps"), HasSubstr("steps=10"),
                             HasSubstr("learning_rate_warmup_steps=0"))));
  EXPECT_THAT(warnings_of({"learning_rate_warmup_steps=10", "steps=10"}), IsEmpty());
}

TEST_F(OptimizerKeys, OfASingleStep) {
  std::vector<std::string> warnings;
  ASSERT_TRUE(resolve_step({"opt_type=sgd", "adam_b1=0.8"}, warnings).ok());
  EXPECT_THAT(warnings, Contains("adam_b1 has no effect: opt_type is sgd"));
}

TEST_F(OptimizerKeys, KeysThatTheScheduleDoesNotRead) {
  EXPECT_THAT(warnings_of({"wsd_decay_style=cosine"}),
              Contains("wsd_decay_style has no effect: lr_schedule_type is cosine"));
  EXPECT_THAT(warnings_of({"lr_schedule_type=wsd", "learning_rate_decay_end=5"}),
              Contains("learning_rate_decay_end has no effect: lr_schedule_type is wsd"));
  EXPECT_THAT(warnings_of({"lr_schedule_type=constant", "learning_rate_final_fraction=0.5"}),
              Contains("learning_rate_final_fraction has no effect: lr_schedule_type is constant"));
  EXPECT_THAT(warnings_of({"lr_schedule_type=wsd", "wsd_decay_steps_fraction=0.3"}), IsEmpty());
  EXPECT_THAT(error_of(resolve({"lr_schedule_type=linear"})),
              AllOf(HasSubstr("lr_schedule_type=linear"), HasSubstr("lr_schedule_type=wsd")));
}

TEST_F(OptimizerKeys, Optimizers) {
  EXPECT_EQ(optimizer_of({}).type, OptimizerType::kAdamW);
  EXPECT_EQ(optimizer_of({"opt_type=sgd"}).type, OptimizerType::kSgd);
  EXPECT_EQ(optimizer_of({"opt_type=adafactor"}).type, OptimizerType::kAdafactor);
  const OptimizerConfig gpt = optimizer_of({"model_name=gpt3-52k"});
  EXPECT_EQ(gpt.type, OptimizerType::kAdamPax);
  EXPECT_LE(gpt.update_clip, 0);
  const OptimizerConfig llama = optimizer_of({"model_name=LLaMA7B"});
  EXPECT_EQ(llama.type, OptimizerType::kAdamPax);
  EXPECT_EQ(llama.update_clip, 1);
  EXPECT_EQ(llama.schedule, ScheduleType::kRampupExponential);
  EXPECT_THAT(error_of(resolve({"opt_type=lion"})),
              AllOf(HasSubstr("opt_type=lion"), HasSubstr("opt_type=adafactor")));
}

TEST_F(OptimizerKeys, KeysThatTheOptimizerDoesNotRead) {
  EXPECT_THAT(warnings_of({"opt_type=sgd", "adam_b1=0.8"}),
              Contains("adam_b1 has no effect: opt_type is sgd"));
  EXPECT_THAT(warnings_of({"adam_clip_threshold=1"}),
              Contains("adam_clip_threshold has no effect: opt_type is adamw"));
  EXPECT_THAT(warnings_of({"opt_type=adam_pax", "adamw_mask=['norm']"}),
              Contains("adamw_mask has no effect: opt_type is adam_pax"));
  EXPECT_THAT(warnings_of({"model_name=LLaMA7B", "opt_type=adamw"}), IsEmpty());
}

TEST_F(OptimizerKeys, NotFinitePolicy) {
  using trainer::NotFinitePolicy;
  const auto policy_of = [](const std::vector<std::string>& overrides) {
    const auto job = resolve(overrides);
    EXPECT_TRUE(job.ok()) << job.status();
    return job->train.not_finite_policy;
  };
  EXPECT_EQ(policy_of({}), NotFinitePolicy::kAbort);
  EXPECT_EQ(policy_of({"not_finite_policy=rollback"}), NotFinitePolicy::kRollback);
  EXPECT_EQ(policy_of({"abort_on_nan_loss=True"}), NotFinitePolicy::kAbort);
  EXPECT_EQ(policy_of({"abort_on_nan_loss=False"}), NotFinitePolicy::kSkip);
  EXPECT_EQ(policy_of({"abort_on_inf_loss=False", "not_finite_policy=rollback"}),
            NotFinitePolicy::kRollback);
  EXPECT_THAT(warnings_of({"abort_on_nan_loss=False", "abort_on_inf_loss=False"}),
              ::testing::ElementsAre(AllOf(HasSubstr("abort_on_nan_loss=False"),
                                           HasSubstr("not_finite_policy applies, which is skip")),
                                     AllOf(HasSubstr("not_finite_policy is skip"),
                                           HasSubstr("dataset_type is synthetic"))));
  EXPECT_THAT(warnings_of({"not_finite_policy=rollback", "dataset_type=shards", "dataset_path=d"}),
              IsEmpty());
  EXPECT_THAT(error_of(resolve({"not_finite_policy=ignore"})),
              AllOf(HasSubstr("not_finite_policy=ignore"), HasSubstr("not_finite_policy=skip")));
  EXPECT_THAT(error_of(resolve({"not_finite_policy=rollback", "enable_checkpointing=False"})),
              AllOf(HasSubstr("rollback"), HasSubstr("enable_checkpointing is false")));
}

TEST_F(OptimizerKeys, Spikes) {
  using trainer::NotFinitePolicy;
  const auto train_of = [&](const std::vector<std::string>& overrides) {
    const auto job = resolve(overrides);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? job->train : trainer::TrainConfig();
  };
  EXPECT_EQ(train_of({}).spikes, trainer::SpikeConfig());
  EXPECT_EQ(train_of({}).max_rollbacks, 4);
  const auto skipping = train_of({"skip_step_on_spikes=True", "skip_step_interval=64",
                                  "skip_step_scaling_factor=4.5", "max_rollbacks=2"});
  EXPECT_EQ(skipping.spikes,
            (trainer::SpikeConfig{
                .skip_step = true, .interval = 64, .scaling_factor = 4.5, .rollback_after = 0}));
  EXPECT_EQ(skipping.not_finite_policy, NotFinitePolicy::kAbort);
  EXPECT_EQ(skipping.max_rollbacks, 2);
  // A job that rolls back after spikes does so after NaN, too, unless a policy is set.
  EXPECT_EQ(train_of({"rollback_after_spikes=3"}).not_finite_policy, NotFinitePolicy::kRollback);
  EXPECT_EQ(train_of({"rollback_after_spikes=3", "not_finite_policy=abort"}).not_finite_policy,
            NotFinitePolicy::kAbort);
  EXPECT_EQ(train_of({"rollback_after_spikes=3", "abort_on_nan_loss=False"}).not_finite_policy,
            NotFinitePolicy::kSkip);
  EXPECT_EQ(train_of({"rollback_after_spikes=3", "abort_on_nan_loss=True"}).not_finite_policy,
            NotFinitePolicy::kAbort);
  EXPECT_THAT(warnings_of({"skip_step_interval=64", "max_rollbacks=2"}),
              AllOf(Contains(HasSubstr("skip_step_interval has no effect: neither")),
                    Contains(HasSubstr("max_rollbacks has no effect: neither"))));
  EXPECT_THAT(warnings_of({"skip_step_on_spikes=True", "skip_step_interval=64"}),
              Not(Contains(HasSubstr("no effect"))));
  EXPECT_THAT(warnings_of({"rollback_after_spikes=3"}),
              Contains(AllOf(HasSubstr("rollback_after_spikes is 3"),
                             HasSubstr("dataset_type is synthetic"))));
  EXPECT_THAT(error_of(resolve({"skip_step_interval=0"})),
              HasSubstr("skip_step_interval is 0, but must be between 1 and 65536"));
  EXPECT_THAT(error_of(resolve({"skip_step_scaling_factor=0"})),
              HasSubstr("skip_step_scaling_factor is 0, but must be above 0"));
  EXPECT_THAT(error_of(resolve({"rollback_after_spikes=-1"})),
              HasSubstr("rollback_after_spikes is -1, but must be between 0 and"));
  EXPECT_THAT(error_of(resolve({"max_rollbacks=0"})),
              HasSubstr("max_rollbacks is 0, but must be between 1 and"));
  EXPECT_THAT(
      error_of(resolve(
          {"rollback_after_spikes=3", "not_finite_policy=skip", "enable_checkpointing=False"})),
      AllOf(HasSubstr("rollback_after_spikes is 3"), HasSubstr("enable_checkpointing is false")));
}

TEST_F(OptimizerKeys, WeightDecay) {
  EXPECT_TRUE(optimizer_of({}).decay_times_learning_rate);
  EXPECT_FALSE(optimizer_of({"weight_decay_times_learning_rate=False"}).decay_times_learning_rate);
  EXPECT_THAT(error_of(resolve({"weight_decay_times_learning_rate=False", "learning_rate=0"})),
              AllOf(HasSubstr("learning_rate is 0"),
                    HasSubstr("weight_decay_times_learning_rate is false")));
  EXPECT_TRUE(resolve({"learning_rate=0"}).ok());
  EXPECT_THAT(optimizer_of({"adamw_mask=['norm', '.*bias']"}).adamw_mask,
              ::testing::ElementsAre("norm", ".*bias"));
  EXPECT_THAT(error_of(resolve({"adamw_mask=['[norm']"})),
              AllOf(HasSubstr("adamw_mask"), HasSubstr("[norm")));
}

}  // namespace
}  // namespace muster::jobspec
