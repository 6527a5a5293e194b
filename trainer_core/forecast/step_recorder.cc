#include "trainer_core/forecast/step_recorder.h"

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer_core/base/train_mesh.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/forecast/recorder.h"
#include "trainer_core/forecast/recording_group.h"
#include "trainer_core/forecast/recording_ops.h"
#include "trainer_core/forecast/reserved_memory.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/step_passes.h"
#include "trainer_core/rank/step_tail.h"

namespace muster::trainer {
namespace {

class RecordingBackend final : public Backend {
 public:
  explicit RecordingBackend(StepRecorder& recorder) : ops_(recorder, memory_) {}
  Ops& ops() override { return ops_; }
  const DeviceMemory& memory() const override { return memory_; }
  int threads() const override { return 1; }
  std::string description() const override { return "recording"; }

 private:
  ReservedMemory memory_;
  RecordingOps ops_;
};

// Calls what a step of the training loop calls (loop/gradient_step.h, loop/train.cc).
absl::Status run_step(const TrainConfig& config, RankModel& rank_model, ProcessGroups& groups,
                      StepRecorder& recorder) {
  const TransformerPlan& plan = rank_model.plan().model;
  const auto tokens = static_cast<size_t>(plan.token_count());
  const std::vector<int32_t> ids(tokens);
  const std::vector<float> weights(tokens, 1);
  const std::vector<int32_t> starts(plan.packed ? static_cast<size_t>(plan.attended_shape().rows())
                                                : 0);
  const Batch batch{.tokens = ids,
                    .targets = ids,
                    .weights = weights,
                    .dropout = {.seed = 1, .first_sample = 0},
                    .starts = starts};
  StepPasses passes(rank_model);
  const auto sum = passes.train(config.micro_batches(), [&](int32_t) { return batch; },
                                {.before_pass = [&](int32_t) { recorder.begin_pass(); }});
  if (!sum.ok()) return sum.status();
  recorder.begin_tail();
  {
    const OpRange range(rank_model.ops(), "reduce");
    if (auto status = rank_model.finish_passes(); !status.ok()) return status;
    rank_model.ops().sum_of_squares(RankModel::flat(rank_model.model().grads()));
    std::array<float, kStepTailElements> tail{};
    if (auto status = groups.world().all_reduce(tail, "step"); !status.ok()) return status;
  }
  return rank_model.update({.learning_rate = 1, .grad_scale = 1, .t = 1, .seed = 1});
}

}  // namespace

absl::StatusOr<StepTrace> record_step(const TrainConfig& requested, int32_t rank) {
  TrainConfig config = requested;
  config.cuda_graphs = false;  // a replay hides the operations
  const Mesh mesh = mesh_of(config.mesh);
  StepRecorder recorder;
  const auto backend = std::make_shared<RecordingBackend>(recorder);
  ProcessGroups groups(std::make_shared<LonelyTransport>(rank, mesh.ranks()), mesh, nullptr,
                       backend->memory());
  groups.use_factory([&](const GroupSpec& spec, int channel) {
    return std::make_unique<RecordingGroup>(recorder, spec, rank, channel);
  });
  RankModel rank_model(config, backend, Staging::kNo, groups, nullptr);
  if (auto status = run_step(config, rank_model, groups, recorder); !status.ok()) return status;
  return recorder.take();
}

}  // namespace muster::trainer
