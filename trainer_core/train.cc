#include "trainer_core/train.h"

#include <cmath>
#include <memory>
#include <mutex>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "trainer_core/agreement.h"
#include "trainer_core/data/batches.h"
#include "trainer_core/failure.h"
#include "trainer_core/load_config.h"
#include "trainer_core/metrics_file.h"
#include "trainer_core/not_finite.h"
#include "trainer_core/ops/gemm_peak.h"
#include "trainer_core/optim/schedule.h"
#include "trainer_core/replica.h"
#include "trainer_core/step_tail.h"

namespace muster::trainer {
namespace {

class Trainer : public RunningStep {
 public:
  Trainer(const TrainConfig& config, const TrainContext& context)
      : config_(config),
        context_(context),
        store_(config.checkpoint_directory, config.max_checkpoints_to_keep),
        tflops_(step_tflops(config)) {}

  ExitCode run() {
    if (auto status = start(); !status.ok()) return fail("start", status, exit_code_for(status));
    last_step_end_ = monotonic_now();
    for (int64_t step = first_step_; step < config_.steps; ++step) {
      const ExitCode code = run_step(step);
      if (code != ExitCode::kOk) return code;
    }
    enter(Phase::kShutdown);
    return ExitCode::kOk;
  }

  void leave(EndProcess end_process) override {
    const std::lock_guard lock(mutex_);
    // Ends the process under the lock: the loop neither changes what was saved nor says anything more.
    if (!leaving_) end_process(save_and_stop());
  }

 private:
  bool leader() const { return context_.group.rank() == 0; }
  void enter(Phase phase) { context_.page.set_phase(phase, monotonic_now()); }

  ExitCode fail(const std::string& where, const absl::Status& status, ExitCode code) {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
    return explain(where, status, code);
  }

  ExitCode explain(const std::string& where, const absl::Status& status, ExitCode code) {
    context_.err << "rank " << context_.group.rank() << ": " << where << ": " << status.message()
                 << std::endl;
    return code;
  }

  // Everything before the first step
  // -----------------------------------------------------------------------------------------------------

  absl::Status start() {
    enter(Phase::kLoad);
    if (auto status = check_world_size(config_, context_.group.size()); !status.ok()) return status;
    if (auto status = open_files(); !status.ok()) return status;
    enter(Phase::kCompile);
    replica_ = std::make_unique<Replica>(config_, context_.threads);
    const auto batch = static_cast<size_t>(config_.per_device_batch_size) *
                       static_cast<size_t>(config_.max_target_length);
    tokens_.resize(batch);
    targets_.resize(batch);
    weights_.resize(batch);
    if (leader()) {
      context_.out << memory_line(replica_->plan().memory()) << '\n'
                   << parameters_line(parameter_count(replica_->table())) << '\n'
                   << per_step_block(tflops_) << std::endl;
    }
    if (auto status = load_parameters(); !status.ok()) return status;
    return check_agreement(context_.group, config_, *replica_);
  }

  absl::Status open_files() {
    const BatchGeometry geometry{context_.group.rank(), context_.group.size(),
                                 config_.per_device_batch_size, config_.max_target_length,
                                 config_.model.vocab_size};
    if (config_.dataset_type == DatasetType::kSynthetic) {
      source_ = BatchSource::synthetic(geometry);
    } else {
      auto dataset = TokenDataset::open(config_.dataset_path, config_.model.vocab_size);
      if (!dataset.ok()) return dataset.status();
      auto source = BatchSource::from_shards(
          std::move(*dataset), geometry, config_.data_shuffle_seed, config_.enable_data_shuffling);
      if (!source.ok()) return source.status();
      source_ = std::move(*source);
    }
    if (!leader()) return absl::OkStatus();
    if (config_.enable_checkpointing) {
      if (auto status = store_.open(context_.owner); !status.ok()) return status;
    }
    if (config_.metrics_file.empty()) return absl::OkStatus();
    auto metrics = MetricsFile::open(config_.metrics_file, config_.run_name);
    if (metrics.ok()) metrics_ = std::move(*metrics);
    return metrics.status();
  }

  absl::Status load_parameters() {
    if (config_.enable_checkpointing) {
      enter(Phase::kCheckpointRestore);
      auto step = restore_newest(context_.group, store_, *replica_, context_.out);
      if (!step.ok()) return step.status();
      first_step_ = *step;
      enter(Phase::kCompile);
    }
    if (first_step_ == 0) {
      init_params(replica_->table(), config_.init_weights_seed, replica_->model().params().data());
      return absl::OkStatus();
    }
    {
      const std::lock_guard lock(mutex_);
      completed_ = saved_step_ = first_step_;
      leaving_ = first_step_ >= config_.steps;
    }
    context_.page.set_checkpoint_step(first_step_);
    if (first_step_ >= config_.steps && leader()) {
      context_.out << "nothing to do: " << first_step_
                   << " steps are completed and steps=" << config_.steps << std::endl;
    }
    return absl::OkStatus();
  }

  // One step
  // -----------------------------------------------------------------------------------------------------

  ExitCode run_step(int64_t step) {
    enter(Phase::kData);
    if (auto status = source_->fill(step, tokens_, targets_, weights_); !status.ok())
      return fail(absl::StrCat("data of step ", step), status, ExitCode::kFailure);
    enter(Phase::kStep);
    const LossSum local = replica_->model().forward_backward(batch(step));
    auto reduced = reduce(local);
    if (!reduced.ok()) return leave_broken_step(step, reduced.status());
    StepRecord record = make_record(step, *reduced);
    if (!std::isfinite(record.loss) || !std::isfinite(record.raw_grad_norm))
      return abort_not_finite(record, *reduced);
    const bool stop = reduced->stop_votes > 0;
    complete(record, reduced->weight, stop);
    return after_step(step, stop);
  }

  // What source_ has filled in for the step.
  Batch batch(int64_t step) const {
    const auto each = static_cast<uint64_t>(config_.per_device_batch_size);
    const auto ranks = static_cast<uint64_t>(context_.group.size());
    const auto rank = static_cast<uint64_t>(context_.group.rank());
    return {tokens_,
            targets_,
            weights_,
            {config_.init_weights_seed, (static_cast<uint64_t>(step) * ranks + rank) * each}};
  }

  absl::StatusOr<StepTail> reduce(const LossSum& local) {
    StepTail mine{
        .loss = local.loss, .weight = local.weight, .stop_votes = context_.signals.stop ? 1 : 0};
    if (!std::isfinite(local.loss)) {
      mine.bad_ranks = 1;
      mine.bad_rank_sum = context_.group.rank();
    }
    const std::span<float> block = replica_->model().grad_block();
    const std::span<float> tail = block.last(kGradTailElements);
    mine.write(tail);
    if (auto status = context_.group.all_reduce(block, "gradients"); !status.ok()) return status;
    return StepTail::read(tail);
  }

  StepRecord make_record(int64_t step, const StepTail& reduced) {
    StepRecord record;
    record.step = step;
    record.tflops_per_device = tflops_.total();
    record.tflops_causal_per_device = tflops_.total_causal();
    record.tokens_per_device = static_cast<double>(tokens_.size());
    record.total_weights = reduced.weight;
    record.loss = reduced.loss / reduced.weight;
    record.raw_grad_norm =
        std::sqrt(replica_->ops().sum_of_squares(Replica::flat(replica_->model().grads()))) /
        reduced.weight;
    record.learning_rate = learning_rate(config_.optimizer, step);
    return record;
  }

  void complete(StepRecord& record, double weight, bool stop) {
    const std::lock_guard lock(mutex_);
    update(record, weight);
    finish_record(record);
    publish(record);
    completed_ = record.step + 1;
    leaving_ = stop || completed_ == config_.steps;
  }

  void update(StepRecord& record, double weight) {
    const double clip = clip_factor(record.raw_grad_norm, config_.optimizer.clipping_threshold);
    record.grad_norm = record.raw_grad_norm * clip;
    replica_->update(
        {.learning_rate = record.learning_rate, .grad_scale = clip / weight, .t = record.step + 1});
    if (metrics_ != nullptr) {
      record.param_norm =
          std::sqrt(replica_->ops().sum_of_squares(Replica::flat(replica_->model().params())));
    }
  }

  void finish_record(StepRecord& record) {
    const Instant now = monotonic_now();
    record.seconds = to_seconds(now - last_step_end_);
    last_step_end_ = now;
  }

  void publish(const StepRecord& record) {
    context_.page.complete_step({.step = record.step + 1,
                                 .loss = record.loss,
                                 .grad_norm = record.raw_grad_norm,
                                 .seconds = record.seconds,
                                 .tokens = tokens_.size(),
                                 .tflops_per_device = record.tflops_per_device / record.seconds,
                                 .learning_rate = record.learning_rate},
                                last_step_end_);
    if (leader()) {
      if (record.step % config_.log_period == 0 || record.step + 1 == config_.steps)
        context_.out << step_line(record) << std::endl;
      if (metrics_ != nullptr) metrics_->write(record);
    }
    if (context_.on_step) context_.on_step(record);
  }

  ExitCode after_step(int64_t step, bool stop) {
    const int64_t completed = step + 1;
    const bool last = completed == config_.steps;
    // The first step's time is what people wait for: the peak is measured after it.
    if (step == first_step_ && !last && !stop) {
      context_.page.set_device_peak_tflops(measure_gemm_peak_tflops(replica_->ops()));
      last_step_end_ = monotonic_now();
    }
    const bool due = completed % config_.checkpoint_period == 0 ||
                     (last && (config_.save_checkpoint_on_completion || stop));
    const std::lock_guard lock(mutex_);
    if (stop && !last) return save_and_stop();
    if (due) {
      if (auto status = save(); !status.ok()) {
        leaving_ = true;
        return explain("checkpoint", status, ExitCode::kFailure);
      }
      last_step_end_ = monotonic_now();
    }
    return ExitCode::kOk;
  }

  // A collective failed. Where this rank was asked to leave, its peers were, too, and one of them did in the middle of the
  // step.
  ExitCode leave_broken_step(int64_t step, const absl::Status& status) {
    const ExitCode code = exit_code_of_step(status);
    if (code != ExitCode::kPeerLost || !context_.signals.stop)
      return fail(absl::StrCat("step ", step), status, code);
    const std::lock_guard lock(mutex_);
    return save_and_stop();
  }

  // Under the lock, on either thread
  // -----------------------------------------------------------------------------------------------------

  ExitCode save_and_stop() {
    leaving_ = true;
    if (auto status = save(); !status.ok())
      return explain("checkpoint", status, ExitCode::kFailure);
    enter(Phase::kShutdown);
    if (leader())
      context_.out << "stopped on request: " << completed_ << " of " << config_.steps
                   << " steps are completed" << std::endl;
    return ExitCode::kPreempted;
  }

  // The state after the last completed step.
  absl::Status save() {
    const bool nothing_new = completed_ == 0 || saved_step_ == completed_;
    if (!config_.enable_checkpointing || nothing_new) return absl::OkStatus();
    enter(Phase::kCheckpointSave);
    if (leader()) {
      const uint64_t global_batch = static_cast<uint64_t>(config_.per_device_batch_size) *
                                    static_cast<uint64_t>(context_.group.size());
      const CheckpointInfo info{.folder = "",
                                .step = completed_,
                                .samples = static_cast<uint64_t>(completed_) * global_batch,
                                .config = to_json(config_)};
      std::vector<std::string> notes;
      if (auto status =
              store_.save(info, replica_->plan().checkpoint_layout(), replica_->state(), notes);
          !status.ok())
        return status;
      for (const std::string& note : notes) context_.err << note << std::endl;
      context_.out << "saved checkpoint " << config_.checkpoint_directory << '/' << completed_
                   << std::endl;
    }
    saved_step_ = completed_;
    // The others have not seen whether rank 0 could save.
    if (leader()) context_.page.set_checkpoint_step(completed_);
    return absl::OkStatus();
  }

  ExitCode abort_not_finite(const StepRecord& record, const StepTail& reduced) {
    const std::string culprit = name_not_finite(context_.group, reduced, [&] {
      replica_->model().forward_backward(batch(record.step));
      return std::sqrt(replica_->ops().sum_of_squares(Replica::flat(replica_->model().grads())));
    });
    if (leader()) {
      context_.err << "Aborting training due to NaN loss. Step " << record.step << ": " << culprit
                   << " is not finite (loss " << record.loss << ", gradient norm "
                   << record.raw_grad_norm << ", learning rate " << record.learning_rate
                   << "); no checkpoint is made of it" << std::endl;
    }
    return ExitCode::kNotFinite;
  }

  const TrainConfig& config_;
  const TrainContext& context_;
  CheckpointStore store_;
  StepTflops tflops_;
  std::unique_ptr<BatchSource> source_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<Replica> replica_;
  std::vector<int32_t> tokens_;   // (B, S)
  std::vector<int32_t> targets_;  // (B, S)
  std::vector<float> weights_;    // (B, S)
  int64_t first_step_ = 0;
  Instant last_step_end_;

  // Guards parameters, moments, what follows, and rank 0's lines. Held while a step is completed and while a checkpoint is
  // written; forward and backward read the parameters and change nothing that a checkpoint holds.
  std::mutex mutex_;
  int64_t completed_ = 0;  // steps that the parameters have seen
  int64_t saved_step_ = -1;
  bool leaving_ = false;  // the loop ends by itself, and saves what is to be saved
};

}  // namespace

ExitCode train(const TrainConfig& config, const TrainContext& context) {
  Trainer trainer(config, context);
  context.signals.loop_begins(trainer, context.group.rank() == 0 ? kVoteWait : kFollowersVoteWait);
  const ExitCode code = trainer.run();
  context.signals.loop_ends();
  return code;
}

}  // namespace muster::trainer
