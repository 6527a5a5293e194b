#include "trainer_core/forecast/step_run.h"

#include <array>

#include "trainer_core/rank/step_passes.h"
#include "trainer_core/rank/step_tail.h"

namespace muster::trainer {

absl::Status run_step(const TrainConfig& config, RankModel& rank_model, ProcessGroups& groups,
                      const StepRunOptions& options) {
  const TransformerPlan& plan = rank_model.plan().model;
  const std::vector<float> weights(options.tokens.size(), 1);
  const std::vector<int32_t> starts(plan.packed ? static_cast<size_t>(plan.attended_shape().rows())
                                                : 0);
  const Batch batch{.tokens = options.tokens,
                    .targets = options.tokens,
                    .weights = weights,
                    .dropout = {.seed = 1, .first_sample = 0},
                    .starts = starts};
  StepPasses passes(rank_model);
  const auto before_pass = [&](int32_t) {
    if (options.begin_pass) options.begin_pass();
  };
  const auto load = [&](int32_t) { return batch; };
  if (config.dpo.enabled) {
    for (const bool reference : {true, false}) {
      rank_model.read_reference(reference);
      if (auto status = passes.evaluate(config.micro_batches(), load, before_pass).status();
          !status.ok())
        return status;
      if (auto status = rank_model.finish_passes(); !status.ok()) return status;
    }
  }
  const auto sum = passes.train(config.micro_batches(), load, {.before_pass = before_pass});
  if (!sum.ok()) return sum.status();
  if (options.begin_tail) options.begin_tail();
  {
    const OpRange range(rank_model.ops(), "reduce");
    if (auto status = rank_model.finish_passes(); !status.ok()) return status;
    rank_model.ops().sum_of_squares(RankModel::flat(rank_model.model().grads()));
    std::array<float, kStepTailElements> tail{};
    if (auto status = groups.world().all_reduce(tail, "step"); !status.ok()) return status;
  }
  return rank_model.update({.learning_rate = 1e-4, .grad_scale = 1, .t = 1, .seed = 1});
}

}  // namespace muster::trainer
