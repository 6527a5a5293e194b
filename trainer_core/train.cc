#include "trainer_core/train.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "trainer_core/agreement.h"
#include "trainer_core/checkpointing.h"
#include "trainer_core/evaluation.h"
#include "trainer_core/failure.h"
#include "trainer_core/gradient_step.h"
#include "trainer_core/initial_parameters.h"
#include "trainer_core/load_config.h"
#include "trainer_core/metrics_file.h"
#include "trainer_core/not_finite.h"
#include "trainer_core/not_finite_policy.h"
#include "trainer_core/ops/gemm_peak.h"
#include "trainer_core/replica.h"
#include "trainer_core/step_data.h"

namespace muster::trainer {
namespace {

class Trainer : public RunningStep {
 public:
  Trainer(const TrainConfig& config, const TrainContext& context)
      : config_(config),
        context_(context),
        checkpoints_(config, context),
        guard_(config.not_finite_policy) {}

  ExitCode run() {
    const ExitCode code = loop();
    checkpoints_.finish();  // leaving_ is set: the signal thread does nothing more
    return code;
  }

  void leave(EndProcess end_process) override {
    const std::lock_guard lock(mutex_);
    // Ends the process under the lock: the loop neither changes what was saved nor says anything more.
    if (!leaving_) end_process(save_and_stop());
  }

 private:
  bool leader() const { return context_.groups.rank() == 0; }
  void enter(Phase phase) { context_.page.set_phase(phase, monotonic_now()); }

  ExitCode loop() {
    if (auto status = start(); !status.ok()) return fail("start", status, exit_code_for(status));
    if (config_.enable_checkpointing) context_.page.offer_checkpoints();
    last_step_end_ = monotonic_now();
    while (!at_end()) {
      const ExitCode code = run_step(completed_);
      if (code != ExitCode::kOk) return code;
    }
    return end();
  }

  ExitCode fail(const std::string& where, const absl::Status& status, ExitCode code) {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
    return explain(where, status, code);
  }

  ExitCode explain(const std::string& where, const absl::Status& status, ExitCode code) {
    context_.err << "rank " << context_.groups.rank() << ": " << where << ": " << status.message()
                 << std::endl;
    return code;
  }

  // Everything before the first step
  // -----------------------------------------------------------------------------------------------------

  absl::Status start() {
    enter(Phase::kLoad);
    if (auto status = check_world_size(config_, context_.groups.mesh().ranks()); !status.ok())
      return status;
    if (auto status = check_same_config(context_.groups, config_); !status.ok()) return status;
    auto data = open_training_data(config_);
    if (!data.ok()) return data.status();
    if (auto status = open_files(*data); !status.ok()) return status;
    enter(Phase::kCompile);
    replica_ = std::make_unique<Replica>(
        config_, context_.threads, staging_of(config_, context_.groups.rank()), context_.groups);
    checkpoints_.attach(*replica_);
    gradients_ = std::make_unique<GradientStep>(config_, context_, *replica_, *data_);
    if (leader()) {
      context_.out << memory_line(replica_->plan().memory()) << '\n'
                   << parameters_line(parameter_count(replica_->table())) << '\n'
                   << per_step_block(step_tflops(config_)) << pipeline_line(config_) << std::endl;
    }
    if (auto status = load_parameters(); !status.ok()) return status;
    return check_agreement(context_.groups, data->fingerprint, *replica_);
  }

  absl::Status open_files(TrainingData& data) {
    data_ = StepData::training(config_, context_.groups.rank(), data);
    if (config_.eval.enabled()) evaluation_ = std::make_unique<Evaluation>(config_, context_, data);
    if (auto status = checkpoints_.open(); !status.ok()) return status;
    if (!leader() || config_.metrics_file.empty()) return absl::OkStatus();
    auto metrics = MetricsFile::open(config_.metrics_file, config_.run_name);
    if (metrics.ok()) metrics_ = std::move(*metrics);
    return metrics.status();
  }

  absl::Status load_parameters() {
    const std::lock_guard lock(mutex_);
    if (auto status = restore(); !status.ok()) return status;
    position_ = restored_samples_;
    leaving_ = at_end();
    if (leaving_ && leader()) {
      context_.out << "nothing to do: " << completed_
                   << " steps are completed and steps=" << config_.steps << std::endl;
    }
    return absl::OkStatus();
  }

  // What the loop's thread alone changes: all steps are completed, the data is used up, or the loss is low enough.
  bool at_end() const {
    return completed_ >= config_.steps || data_->ends_at(position_) || target_reached_;
  }

  // Parameters and state of the newest checkpoint, or those of the beginning. Under the lock.
  absl::Status restore() {
    completed_ = 0;
    restored_samples_ = 0;
    if (config_.enable_checkpointing) enter(Phase::kCheckpointRestore);
    const auto newest = checkpoints_.restore();
    if (!newest.ok()) return newest.status();
    replica_->parameters_changed();
    enter(Phase::kCompile);
    if (newest->has_value()) {
      completed_ = (*newest)->step;
      restored_samples_ = (*newest)->samples;
      return absl::OkStatus();
    }
    replica_->model().reset_scaling();
    std::ranges::fill(replica_->state().state, 0.0F);
    return begin_parameters(config_, replica_->plan().model.sharding.layout,
                            replica_->model().params(), leader() ? &context_.out : nullptr);
  }

  // One step
  // -----------------------------------------------------------------------------------------------------

  ExitCode run_step(int64_t step) {
    const auto local = gradients_->compute(position_);
    if (!local.ok())
      return fail(absl::StrCat("data of step ", step), local.status(), ExitCode::kFailure);
    const auto reduced = gradients_->reduce(*local);
    if (!reduced.ok()) {
      const std::lock_guard lock(mutex_);
      return leave_broken(absl::StrCat("step ", step), reduced.status());
    }
    if (reduced->checkpoint_votes > 0) checkpoints_.ask();
    StepRecord record = gradients_->record(step, *reduced);
    record.skipped_batches = skipped_;
    const bool stop = reduced->stop_votes > 0;
    if (!std::isfinite(record.loss) || !std::isfinite(record.raw_grad_norm))
      return pass_over(record, *reduced, !std::isfinite(local->loss), stop);
    if (auto status = complete(record, GradientStep::divisor(*reduced), stop); !status.ok())
      return fail(absl::StrCat("update of step ", step), status, exit_code_of_step(status));
    return after_step(step, stop);
  }

  // After an error there is nothing left that is worth saving.
  absl::Status complete(StepRecord& record, double weight, bool stop) {
    const std::lock_guard lock(mutex_);
    checkpoints_.before_update();
    const absl::Status status = update(record, weight);
    leaving_ = !status.ok();
    if (leaving_) return status;
    finish_record(record);
    publish(record);
    completed_ = record.step + 1;
    position_ += data_->samples_per_step();
    guard_.on_step();
    leaving_ = stop || (at_end() && !evaluated_after(completed_));
    return absl::OkStatus();
  }

  absl::Status update(StepRecord& record, double weight) {
    const double clip = clip_factor(record.raw_grad_norm, config_.optimizer.clipping_threshold);
    record.grad_norm = record.raw_grad_norm * clip;
    const UpdateStep step{
        .learning_rate = record.learning_rate, .grad_scale = clip / weight, .t = record.step + 1};
    if (auto status = replica_->update(step); !status.ok()) return status;
    if (config_.metrics_file.empty()) return absl::OkStatus();
    const auto norm = gradients_->parameter_norm();
    if (norm.ok()) record.param_norm = *norm;
    return norm.status();
  }

  void finish_record(StepRecord& record) {
    const Instant now = monotonic_now();
    const Duration stall = checkpoints_.take_stall();
    record.checkpoint_stall_seconds = to_seconds(stall + std::exchange(stall_between_steps_, {}));
    record.seconds = to_seconds(now - last_step_end_ - stall);
    data_wait_.add(record);
    last_step_end_ = now;
  }

  // What was done until now is no step's. Under the lock.
  void restart_clock() {
    stall_between_steps_ += checkpoints_.take_stall();
    last_step_end_ = monotonic_now();
  }

  void publish(const StepRecord& record) {
    context_.page.complete_step(progress_of(record), last_step_end_);
    if (leader()) {
      const bool last =
          record.step + 1 == config_.steps || data_->ends_at(position_ + data_->samples_per_step());
      if (record.step % config_.log_period == 0 || last)
        context_.out << step_line(record) << std::endl;
      if (metrics_ != nullptr) metrics_->write(record);
    }
    if (context_.on_step) context_.on_step(record);
  }

  ExitCode after_step(int64_t step, bool stop) {
    const int64_t completed = step + 1;
    if (!stop && evaluated_after(completed)) {
      if (auto status = run_evaluation(step); !status.ok()) {
        const std::lock_guard lock(mutex_);
        return leave_broken(absl::StrCat("evaluation after step ", step), status);
      }
    }
    const bool last = at_end();
    // The first step's time is what people wait for: the peak is measured after it.
    if (!peak_measured_ && !last && !stop) {
      peak_measured_ = true;
      context_.page.set_device_peak_tflops(
          measure_gemm_peak_tflops(replica_->ops(), config_.activation_type()));
      last_step_end_ = monotonic_now();
    }
    const bool due = checkpoints_.is_due(completed) || (last && stop);
    const std::lock_guard lock(mutex_);
    if (stop && !last) return save_and_stop();
    absl::Status status = checkpoints_.collect();
    if (status.ok() && due) status = save(/*goes_on=*/!last);
    if (due) restart_clock();
    if (status.ok()) return ExitCode::kOk;
    leaving_ = true;
    return explain("checkpoint", status, ExitCode::kFailure);
  }

  // Evaluation
  // -----------------------------------------------------------------------------------------------------

  bool evaluated_after(int64_t completed) const {
    return evaluation_ != nullptr && evaluation_->is_due(completed);
  }

  absl::Status run_evaluation(int64_t step) {
    const auto record = evaluation_->run(*replica_, step);
    if (!record.ok()) return record.status();
    const std::lock_guard lock(mutex_);
    target_reached_ = evaluation_->reaches_target(*record);
    leaving_ = at_end();
    evaluation_->publish(*record, metrics_.get());
    restart_clock();
    return absl::OkStatus();
  }

  // The end
  // -----------------------------------------------------------------------------------------------------

  ExitCode end() {
    const std::lock_guard lock(mutex_);
    if (config_.save_checkpoint_on_completion || context_.signals.stop) {
      if (auto status = save(/*goes_on=*/false); !status.ok())
        return explain("checkpoint", status, ExitCode::kFailure);
    }
    if (leader() && completed_ < config_.steps && data_->ends_at(position_)) {
      context_.out << "the data ends: num_epoch=" << config_.num_epoch << " gives " << completed_
                   << " of " << config_.steps << " steps" << std::endl;
    }
    if (leader() && data_wait_.steps() > 0) context_.out << data_wait_.line() << std::endl;
    enter(Phase::kShutdown);
    return ExitCode::kOk;
  }

  // A step that is not finite
  // -----------------------------------------------------------------------------------------------------

  // All ranks come to the same decision here, from the same numbers.
  ExitCode pass_over(const StepRecord& record, const StepTail& reduced, bool own_loss_is_bad,
                     bool stop) {
    bool found_here = false;
    // Where a loss is bad, ranks with a good one have nothing to look for, but may have what others need to look.
    if (own_loss_is_bad || reduced.bad_ranks == 0 || replica_->shares_parameters()) {
      const auto first = find_not_finite(*replica_, *data_, position_);
      if (!first.ok() && replica_->shares_parameters())  // others' passes need this rank's
        return fail("not finite", first.status(), exit_code_of_step(first.status()));
      found_here = first.ok() && first->has_value();
      if (found_here)
        context_.err << "rank " << context_.groups.rank() << ": step " << record.step << ": "
                     << describe(**first) << std::endl;
    }
    const std::string culprit = name_not_finite(context_.groups.world(), reduced, found_here);
    const std::lock_guard lock(mutex_);
    const NotFiniteDecision decision = guard_.on_not_finite();
    const uint64_t end = position_ + data_->samples_per_step();
    if (leader())
      context_.err << not_finite_line(record, culprit, position_, end - 1, decision) << std::endl;
    if (decision.action == NotFiniteAction::kAbort) {
      leaving_ = true;
      return ExitCode::kNotFinite;
    }
    position_ = end;
    ++skipped_;
    leaving_ = at_end();
    if (decision.action == NotFiniteAction::kRollback) {
      if (auto status = restore(); !status.ok()) return leave_broken("rollback", status);
      if (leader()) {
        context_.err << rollback_line(completed_, record.step, restored_samples_, end - 1)
                     << std::endl;
      }
    }
    if (stop && !leaving_) return save_and_stop();
    restart_clock();
    return ExitCode::kOk;
  }

  // A step or a rollback failed. Where peers are lost and this rank was asked to leave, they were, too, and one of them did in
  // the middle of it. Under the lock.
  ExitCode leave_broken(const std::string& where, const absl::Status& status) {
    leaving_ = true;
    const ExitCode code = exit_code_of_step(status);
    const bool alone = !replica_->shares_parameters();
    if (code == ExitCode::kPeerLost && context_.signals.stop && alone) return save_and_stop();
    return explain(where, status, code);
  }

  // Under the lock, on either thread
  // -----------------------------------------------------------------------------------------------------

  ExitCode save_and_stop() {
    leaving_ = true;
    if (auto status = save(/*goes_on=*/false); !status.ok())
      return explain("checkpoint", status, ExitCode::kFailure);
    enter(Phase::kShutdown);
    if (leader())
      context_.out << "stopped on request: " << completed_ << " of " << config_.steps
                   << " steps are completed" << std::endl;
    return ExitCode::kPreempted;
  }

  // The state after the last completed step.
  absl::Status save(bool goes_on) {
    enter(Phase::kCheckpointSave);
    guard_.on_checkpoint();
    return goes_on ? checkpoints_.save(completed_, position_)
                   : checkpoints_.save_last(completed_, position_);
  }

  const TrainConfig& config_;
  const TrainContext& context_;
  std::unique_ptr<StepData> data_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<GradientStep> gradients_;
  std::unique_ptr<Evaluation> evaluation_;  // null: nothing is evaluated
  Checkpointing checkpoints_;               // ends before the replica that it saves
  int64_t skipped_ = 0;                     // batches that this process has passed over
  bool peak_measured_ = false;
  bool target_reached_ = false;  // of evaluations
  Instant last_step_end_;
  Duration stall_between_steps_{};
  DataWait data_wait_;  // of all steps of this process

  // Guards parameters, moments, what follows, and rank 0's lines. Held while a step is completed or passed over, and while a
  // checkpoint is written or restored; forward and backward read the parameters and change nothing that a checkpoint holds.
  std::mutex mutex_;
  NotFiniteGuard guard_;
  int64_t completed_ = 0;  // steps that the parameters have seen
  uint64_t position_ = 0;  // samples consumed, by those steps and by batches that were passed over
  uint64_t restored_samples_ = 0;  // of the state that restore() brought back
  bool leaving_ = false;           // the loop ends by itself, and saves what is to be saved
};

}  // namespace

ExitCode train(const TrainConfig& config, const TrainContext& context) {
  Trainer trainer(config, context);
  const bool saves = writes_checkpoints(context.groups.mesh(), context.groups.rank());
  context.signals.loop_begins(trainer, saves ? kVoteWait : kFollowersVoteWait);
  const ExitCode code = trainer.run();
  context.signals.loop_ends();
  return code;
}

}  // namespace muster::trainer
