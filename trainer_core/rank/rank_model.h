// A rank's part of the model, with its memory plan, memory, operations and exchanges.
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

// The model of a rank. It cannot be moved, because its members refer to each other. Called on one
// thread at a time.
class RankModel {
 public:
  // Creates the model of a rank whose passes do not involve other ranks, on the CPU. Gradients are
  // not reduced. Requires that ranks of the config's mesh do not share the storage of parameters.
  RankModel(const TrainConfig& config, int32_t threads, Staging staging = Staging::kNo)
      : RankModel(config, cpu_backend(threads), staging, nullptr) {}
  // Creates the model of this rank in the mesh of `groups`, on the CPU. Requires that this mesh is
  // that of the config, and that `groups` outlives the model.
  RankModel(const TrainConfig& config, int32_t threads, Staging staging, ProcessGroups& groups)
      : RankModel(config, cpu_backend(threads), staging, &groups) {}
  // Does the same on `backend`. Requires that `groups` was constructed with the memory of the
  // backend. `device_memory` is the memory that prepare_devices() has allocated for this plan;
  // null: the model allocates it.
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

  // Returns whether this rank's passes need other ranks to run the same passes: to gather
  // parameters, or because the rank has only some of the layers.
  bool shares_parameters() const {
    return plan_.model.sharding.shares() || !plan_.model.pipeline().has_all_layers();
  }
  // Returns the messages between the stages of a pipeline; null without a pipeline.
  StageMessages* messages() { return messages_.get(); }
  // Prepares the passes that follow, in order. Called in a pipeline only.
  void begin_pipeline_passes(std::span<const PipelinePass> passes) {
    parameters_->gather_ends();
    messages_->begin(passes);
  }
  // Prepares a pass that computes gradients. Called before each such pass.
  void begin_pass(const PassPosition& pass) {
    if (parameters_) parameters_->begin(pass);
  }
  // Blocks until all communication of the passes is done. After the last pass of a step, the
  // gradients are then reduced over all ranks. Returns the first error of the groups.
  absl::Status finish_passes() {
    absl::Status status = exchange_ ? exchange_->finish() : absl::OkStatus();
    if (parameters_) status.Update(parameters_->finish());
    if (messages_) status.Update(messages_->finish());
    return status;
  }
  // Returns whether communication has failed.
  bool broken() const {
    return (parameters_ && parameters_->broken()) || (exchange_ && exchange_->broken()) ||
           (messages_ && messages_->broken());
  }
  // Invalidates gathered parameters. Called after any code except update() has written parameters.
  void parameters_changed() {
    if (parameters_) parameters_->parameters_changed();
  }
  // Returns the times of the communication that runs concurrently with passes, since construction.
  CommTimes comm_times() const {
    CommTimes times = parameters_ ? parameters_->times() : CommTimes();
    if (exchange_) times += exchange_->times();
    if (messages_) times += messages_->sent_times();
    return times;
  }

  // Returns the state that checkpoints save, in the memory of the backend.
  CheckpointBlocks state() { return {model_.state(), optimizer_state()}; }
  // Returns the staging buffers, which have room for a copy of the state in host memory; nullopt
  // without Staging::kYes.
  std::optional<CheckpointBlocks> staging() {
    if (!plan_.staging) return std::nullopt;
    float* copy = arena_.f32(*plan_.staging);
    const CheckpointBlocks live = state();
    return CheckpointBlocks{{copy, live.params.size()},
                            {copy + live.params.size(), live.state.size()}};
  }
  // The three functions below give the host access to the state. Requires that no background save
  // uses the staging buffers at the same time; with a device, requires Staging::kYes.
  //
  // Returns the state in host memory: the state itself on the CPU, the staging buffers with a
  // device.
  CheckpointBlocks host_state() {
    if (backend_->memory().is_host()) return state();
    const auto copy = staging();
    MUSTER_CHECK(copy.has_value()) << "no copy of the state on the host";
    return *copy;
  }
  // Copies the state from the device to host_state() and returns it.
  CheckpointBlocks fetch_state() {
    const CheckpointBlocks live = state(), host = host_state();
    copy_state(backend_->memory(), live, host);
    return host;
  }
  // Copies host_state() to the device.
  void store_state() {
    const CheckpointBlocks live = state(), host = host_state();
    ops_.synchronize();
    backend_->memory().upload(host.params.data(), live.params.data(), live.params.size_bytes());
    if (live.state.empty()) return;
    backend_->memory().upload(host.state.data(), live.state.data(), live.state.size_bytes());
  }
  // Updates the parameters with the gradients, which may be overwritten, and advances the state of
  // delayed scaling. Blocks until the operations are complete, so that the caller may copy the
  // state. After an error the state is undefined.
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

  // Returns this rank's shards of the parameters that are stored in blocks.
  WeightBlocks weight_blocks() const { return trainer::weight_blocks(plan_.model, arena_); }

  // The parameters of a reference model (Sharding::has_reference). Sets them to zero, which
  // disables adapters, or to the present ones.
  void clear_reference() { ops_.fill(flat(reference()), 0); }
  void set_reference() { ops_.copy(flat(trained()), flat(reference())); }
  // Sets the parameters to those of the reference model, and the optimizer state to zero.
  void begin_from_reference() {
    ops_.fill(flat(optimizer_state()), 0);
    ops_.copy(flat(reference()), flat(trained()));
    ops_.synchronize();
  }
  // Makes later passes read the reference model, or the trained one. Called between passes, after
  // finish_passes(). The state does not change, so it may be saved at the same time.
  void read_reference(bool reference) {
    model_.read_reference(reference);
    if (parameters_) parameters_->read_reference(reference);
  }

  // Returns the peak throughput of the backend's GEMMs, measured now, in TFLOP/s. Called between
  // steps, because on a device it overwrites the memory of the gradients. `watch` judges the GEMMs
  // of a CPU.
  double measure_peak_tflops(const GemmWatch& watch) {
    const DType dtype = plan_.model.dtype;
    return backend_->memory().is_host()
               ? measure_gemm_peak_tflops(ops_, dtype, &watch)
               : measure_gemm_peak_tflops(ops_, dtype, flat(model_.grads()));
  }

  // Returns a view of N elements as a tensor (N).
  static Tensor flat(std::span<float> elements) {
    return Tensor::f32(elements.data(), {static_cast<int64_t>(elements.size())});
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

  // Returns the stored parameters and those of the reference model, in units of an fp32 element.
  std::span<float> trained() {
    return model_.state().first(static_cast<size_t>(plan_.model.stored_floats()));
  }
  std::span<float> reference() {
    return {arena_.f32(plan_.model.reference_block),
            static_cast<size_t>(plan_.model.stored_floats())};
  }

  // Empty if the rank evaluates only.
  std::span<float> optimizer_state() {
    if (!plan_.model.training) return {};
    return {arena_.f32(plan_.model.optimizer_state),
            static_cast<size_t>(plan_.optimizer->state_elements())};
  }

  std::shared_ptr<Backend> backend_;
  Ops& ops_;
  TrainingPlan plan_;
  Arena arena_;
  std::unique_ptr<ShardedParameters> parameters_;  // null: a single rank that reads its shards
  std::unique_ptr<MeshExchange> exchange_;         // null: no exchanges within layers
  std::unique_ptr<StageMessages> messages_;        // null: the rank has all layers
  Transformer model_;
  std::optional<GroupSums> sums_;  // nullopt: no groups
};

}  // namespace muster::trainer
