// One rank's part of the model: its memory plan, its memory and its operations.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/model/transformer.h"
#include "trainer_core/ops/backend.h"
#include "trainer_core/ops/gemm_peak.h"
#include "trainer_core/parallel/group_sums.h"
#include "trainer_core/parallel/mesh_exchange.h"
#include "trainer_core/parallel/sharded_parameters.h"
#include "trainer_core/parallel/stage_messages.h"
#include "trainer_core/rank/training_plan.h"

namespace muster::trainer {

// Not movable: the model refers to the other members.
class RankModel {
 public:
  // Creates the model of a rank that works alone on the CPU, or whose passes must not involve other
  // ranks: gradients stay local. Requires: the config's mesh shares no storage.
  RankModel(const TrainConfig& config, int32_t threads, Staging staging = Staging::kNo)
      : RankModel(config, cpu_backend(threads), staging, nullptr) {}
  // Creates the part of this rank of the groups' mesh, on the CPU. Requires: the groups' mesh is
  // the config's, and `groups` outlives the model.
  RankModel(const TrainConfig& config, int32_t threads, Staging staging, ProcessGroups& groups)
      : RankModel(config, cpu_backend(threads), staging, &groups) {}
  // Does the same on `backend`. Requires: the groups were set up for the backend's memory.
  // `device_memory`: what prepare_devices() has allocated for this plan, or null.
  RankModel(const TrainConfig& config, std::shared_ptr<Backend> backend, Staging staging,
            ProcessGroups& groups, std::shared_ptr<void> device_memory)
      : RankModel(config, std::move(backend), staging, &groups, std::move(device_memory)) {}
  RankModel(const RankModel&) = delete;
  RankModel& operator=(const RankModel&) = delete;

  const TrainingPlan& plan() const { return plan_; }
  const std::vector<ParamSpec>& table() const { return plan_.model.params; }
  Transformer& model() { return model_; }
  Ops& ops() { return ops_; }
  const Backend& backend() const { return *backend_; }

  // Returns whether other ranks must run the same passes as this one.
  bool shares_parameters() const {
    return plan_.model.sharding.shares() || !plan_.model.pipeline().has_all_layers();
  }
  // Returns the messages between the stages of a pipeline; null without a pipeline.
  StageMessages* messages() { return messages_.get(); }
  // Starts these passes. Called only in a pipeline, before them.
  void begin_passes(std::span<const PipelinePass> passes) {
    parameters_->gather_ends();
    messages_->begin(passes);
  }
  // Called before each pass that computes gradients.
  void begin_pass(const StepPass& pass) {
    if (parameters_) parameters_->begin(pass);
  }
  // Completes the passes: afterwards the gradients are reduced over all ranks with the same shards.
  // Returns the first error of the groups.
  absl::Status finish_passes() {
    absl::Status status = exchange_ ? exchange_->finish() : absl::OkStatus();
    if (parameters_) status.Update(parameters_->finish());
    if (messages_) status.Update(messages_->finish());
    return status;
  }
  bool broken() const {
    return (parameters_ && parameters_->broken()) || (exchange_ && exchange_->broken()) ||
           (messages_ && messages_->broken());
  }
  // Called after code other than update() has written parameters.
  void parameters_changed() {
    if (parameters_) parameters_->parameters_changed();
  }
  // Returns the time of communication that overlaps with passes, since construction.
  CommTimes comm_times() const {
    CommTimes times = parameters_ ? parameters_->times() : CommTimes();
    if (exchange_) times += exchange_->times();
    if (messages_) times += messages_->sent_times();
    return times;
  }

  // Returns the state that a checkpoint holds, in the backend's memory.
  CheckpointBlocks state() { return {model_.state(), optimizer_state()}; }
  // Returns the buffers for a copy of the state; nullopt without Staging::kYes.
  std::optional<CheckpointBlocks> staging() {
    if (!plan_.staging) return std::nullopt;
    float* copy = arena_.f32(*plan_.staging);
    const CheckpointBlocks live = state();
    return CheckpointBlocks{{copy, live.params.size()},
                            {copy + live.params.size(), live.state.size()}};
  }
  // Returns the state in host memory: the state itself on the CPU; with device memory its copy,
  // which requires Staging::kYes. After writing to it, call store_state(); before reading it, call
  // fetch_state(). Requires: no save reads the copy at the same time.
  CheckpointBlocks host_state() {
    if (backend_->memory().is_host()) return state();
    const auto copy = staging();
    MUSTER_CHECK(copy.has_value()) << "no copy of the state on the host";
    return *copy;
  }
  CheckpointBlocks fetch_state() {
    const CheckpointBlocks live = state(), host = host_state();
    copy_state(backend_->memory(), live, host);
    return host;
  }
  void store_state() {
    const CheckpointBlocks live = state(), host = host_state();
    ops_.synchronize();
    backend_->memory().upload(host.params.data(), live.params.data(), live.params.size_bytes());
    backend_->memory().upload(host.state.data(), live.state.data(), live.state.size_bytes());
  }
  // Applies one optimizer update with the gradients, which it may overwrite, and ends the step of
  // delayed scaling. Blocks until the operations are complete, so that the caller may copy the
  // state. After an error the state is undefined: neither the old nor the new one.
  absl::Status update(const UpdateStep& step) {
    const OpRange range(ops_, "update");
    const absl::Status status = plan_.optimizer->update(
        ops_, step, {model_.parameters(), model_.grads(), optimizer_state()},
        sums_ ? &*sums_ : nullptr);
    if (status.ok()) model_.advance_scaling();
    ops_.synchronize();
    parameters_changed();
    return status;
  }

  // Measures the peak throughput of the backend's GEMMs. Called between steps: on a device it uses
  // the memory of the gradients, because no other memory is free.
  double measure_peak_tflops() {
    const DType dtype = plan_.model.dtype;
    return backend_->memory().is_host()
               ? measure_gemm_peak_tflops(ops_, dtype)
               : measure_gemm_peak_tflops(ops_, dtype, flat(model_.grads()));
  }

  // Returns the elements as one flat tensor, (N).
  static Tensor flat(std::span<float> numbers) {
    return Tensor::f32(numbers.data(), {static_cast<int64_t>(numbers.size())});
  }

 private:
  RankModel(const TrainConfig& config, std::shared_ptr<Backend> backend, Staging staging,
            ProcessGroups* groups, std::shared_ptr<void> device_memory = nullptr)
      : backend_(std::move(backend)),
        ops_(backend_->ops()),
        plan_(plan_training(config, backend_->threads(), staging,
                            groups == nullptr ? 0 : groups->rank())),
        arena_(plan_.memory(), backend_->memory(), std::move(device_memory)),
        parameters_((groups == nullptr || groups->mesh().ranks() == 1) &&
                            !plan_.model.sharding.copies()
                        ? nullptr
                        : std::make_unique<ShardedParameters>(plan_.model, arena_, ops_, groups)),
        exchange_(groups == nullptr || !plan_.model.part().exchanges()
                      ? nullptr
                      : std::make_unique<MeshExchange>(plan_.model, arena_, ops_, *groups)),
        messages_(groups == nullptr || plan_.model.pipeline().has_all_layers()
                      ? nullptr
                      : std::make_unique<StageMessages>(plan_.model, arena_, ops_, *groups)),
        model_(plan_.model, arena_, ops_, parameters_.get(), exchange_.get()) {
    if (config.cuda_graphs) model_.replay();
    if (groups == nullptr) return;
    groups->follow(ops_.queue());
    sums_.emplace(*groups);
  }

  std::span<float> optimizer_state() {
    return {arena_.f32(plan_.model.optimizer_state),
            static_cast<size_t>(plan_.optimizer->state_elements())};
  }

  std::shared_ptr<Backend> backend_;
  Ops& ops_;
  TrainingPlan plan_;
  Arena arena_;
  std::unique_ptr<ShardedParameters> parameters_;  // null: a single rank, which reads its shards
  std::unique_ptr<MeshExchange> exchange_;         // null: the rank computes all of the model
  std::unique_ptr<StageMessages> messages_;        // null: the rank has all layers
  Transformer model_;
  std::optional<GroupSums> sums_;
};

}  // namespace muster::trainer
