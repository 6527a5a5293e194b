#include "trainer_core/forecast/step_recorder.h"

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
#include "trainer_core/forecast/step_run.h"
#include "trainer_core/rank/rank_model.h"

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
  const auto tokens = static_cast<size_t>(rank_model.plan().model.token_count());
  const absl::Status status = run_step(config, rank_model, groups,
                                       {.tokens = std::vector<int32_t>(tokens),
                                        .begin_pass = [&] { recorder.begin_pass(); },
                                        .begin_tail = [&] { recorder.begin_tail(); }});
  if (!status.ok()) return status;
  return recorder.take();
}

}  // namespace muster::trainer
