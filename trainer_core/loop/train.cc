#include "trainer_core/loop/train.h"

#include <cmath>
#include <memory>
#include <mutex>

#include <absl/strings/str_cat.h>

#include "trainer_core/loop/evaluation.h"
#include "trainer_core/loop/gradient_step.h"
#include "trainer_core/loop/step_report.h"
#include "trainer_core/rank/group_peers.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/recovery/checkpointing.h"
#include "trainer_core/recovery/failure.h"
#include "trainer_core/recovery/leaving.h"
#include "trainer_core/recovery/not_finite.h"
#include "trainer_core/recovery/not_finite_policy.h"
#include "trainer_core/recovery/starting_point.h"
#include "trainer_core/startup/agreement.h"
#include "trainer_core/startup/choose_backend.h"
#include "trainer_core/startup/load_config.h"
#include "trainer_core/startup/planned_start.h"
#include "trainer_core/startup/remote_inputs.h"

namespace muster::trainer {
namespace {

class Trainer : public RunningStep {
  using By = Leaving::By;

 public:
  Trainer(const TrainConfig& config, const TrainContext& context)
      : config_(config),
        context_(context),
        checkpoints_(config, context),
        report_(config, context),
        writes_(is_checkpoint_writer(context.groups.mesh(), context.groups.rank())),
        writers_(GroupPeers::of_writers(context.groups, kLeaveChannel, "leave")),
        guard_(config.not_finite_policy) {}

  ExitCode run() {
    const ExitCode code = loop();
    checkpoints_.finish();  // the signal thread does nothing from here on
    if (code == ExitCode::kOk) checkpoints_.remove_local();
    return code;
  }

  void leave(EndProcess end_process) override {
    if (!leaving_.claim(By::kSignalThread)) return;
    checkpoints_.hurry();  // the loop may hold the mutex while it waits for a save
    if (leaving_.started()) {
      // The save does not need the channels on which passes may wait for peers forever.
      context_.groups.isolate_channels();
      const absl::Status together = join_writers(/*wants_save=*/true).status();
      const std::lock_guard lock(mutex_);  // the loop prints nothing more
      if (!leaving_.has_given_up()) end_process(save_and_stop(together));
    } else {
      end_process(ExitCode::kPreempted);
    }
    leaving_.left();
  }

  bool give_up(EndProcess end_process) override {
    if (!leaving_.started()) return false;
    // The loop holds the mutex while it waits for a save, but not during a background save.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || checkpoints_.is_saving() || !leaving_.give_up()) return false;
    print_error("leaving", kPeersStayedAway);
    end_process(ExitCode::kPreempted);
    context_.groups.abort();  // in tests, peers see the end of this rank
    return true;
  }

 private:
  bool leader() const { return context_.groups.rank() == 0; }
  void enter(Phase phase) { enter_phase(context_, phase); }

  ExitCode loop() {
    if (auto status = start(); !status.ok()) return fail("start", status, exit_code_for(status));
    if (config_.enable_checkpointing) context_.page.offer_checkpoints();
    report_.restart_clock();
    ExitCode code = config_.only_evaluates() ? evaluate(completed_ - 1) : ExitCode::kOk;
    if (misses_one()) code = after_step(completed_ - 1, /*stop=*/false);
    while (code == ExitCode::kOk && !at_end()) code = run_step(completed_);
    return code == ExitCode::kOk ? end() : code;
  }

  // The loop cannot continue. If the signal thread has claimed the leaving, it reports the reason.
  ExitCode fail(const std::string& where, const absl::Status& status, ExitCode code) {
    return leaving_.claim(By::kLoop) ? explain(where, status, code) : await_other_exit(status);
  }

  ExitCode await_other_exit(const absl::Status& why) {
    leaving_.wait_until_left(why);
    return ExitCode::kPreempted;
  }

  ExitCode explain(const std::string& where, const absl::Status& status, ExitCode code) {
    print_error(where, std::string(status.message()));
    return code;
  }

  void print_error(const std::string& where, std::string_view what) {
    context_.err << "rank " << context_.groups.rank() << ": " << where << ": " << what << std::endl;
  }

  // Everything before the first step
  absl::Status start() {
    enter(Phase::kLoad);
    if (auto status = check_world_size(config_, context_.groups.mesh().ranks()); !status.ok())
      return status;
    if (auto status = check_same_config(context_.groups, config_); !status.ok()) return status;
    auto device_memory = prepare_devices(config_, context_);
    if (!device_memory.ok()) return device_memory.status();
    auto inputs = with_local_data(config_, context_.err, [this] { enter(Phase::kLoad); });
    if (!inputs.ok()) return inputs.status();
    auto data = open_training_data(*inputs);
    if (!data.ok()) return data.status();
    report_.print(data->notes);
    if (auto status = open_files(*data); !status.ok()) return status;
    enter(Phase::kCompile);
    rank_model_ = std::make_unique<RankModel>(
        config_, context_.backend != nullptr ? context_.backend : cpu_backend(context_.threads),
        staging_of(config_, context_.groups.rank()), context_.groups, *std::move(device_memory));
    if (auto status = check_rank_plan(config_, context_, rank_model_->plan()); !status.ok())
      return status;
    checkpoints_.attach(*rank_model_);
    gradients_.emplace(config_, context_, *rank_model_, *data_, data->pairs_max);
    report_.begin(*rank_model_);
    if (auto status = load_parameters(); !status.ok()) return status;
    absl::Status status = check_agreement(context_.groups, data->fingerprint, *rank_model_);
    if (status.ok()) leaving_.start();
    return status;
  }

  absl::Status open_files(TrainingData& data) {
    data_ = StepData::training(config_, context_.groups.rank(), data);
    auto evaluation = Evaluation::open(config_, context_, data);
    if (!evaluation.ok()) return evaluation.status();
    evaluation_ = *std::move(evaluation);
    if (auto status = checkpoints_.open(data.order); !status.ok()) return status;
    return report_.open();
  }

  absl::Status load_parameters() {
    if (auto status = restore(RestoreFrom::kAnywhere); !status.ok()) return status;
    position_ = restored_samples_;
    const bool is_done = at_end() && config_.steps > 0 && !misses_one();
    if (is_done) report_.nothing_to_do(completed_, ends_early());
    return absl::OkStatus();
  }

  // Returns whether all steps or all data are used, or an evaluation ends the training.
  bool at_end() const { return is_last() || ends_early(); }
  bool is_last() const { return completed_ >= config_.steps || data_->is_exhausted_at(position_); }
  bool ends_early() const { return evaluation_ != nullptr && evaluation_->ends_training(); }
  bool evaluates() const { return evaluation_ && evaluation_->is_due(completed_, is_last()); }
  bool misses_one() const { return evaluation_ && evaluation_->is_missing(completed_, is_last()); }

  absl::Status restore(RestoreFrom from) {
    const auto at = restore_or_begin(config_, context_, checkpoints_, *rank_model_, from);
    if (!at.ok()) return at.status();
    completed_ = at->step;
    restored_samples_ = at->samples;
    return evaluation_ ? evaluation_->resume(checkpoints_.evaluation()) : absl::OkStatus();
  }

  ExitCode run_step(int64_t step) {
    report_.begin_step();
    const LossSum local = gradients_->compute(position_);
    if (!leaving_.expect_commit()) return ExitCode::kPreempted;
    const auto reduced = gradients_->reduce(local, checkpoints_.is_busy());
    if (!reduced.ok()) return leave_broken(absl::StrCat("step ", step), reduced.status());
    if (auto status = gradients_->data_verdict(*reduced); !status.ok())
      return leave_without_data(absl::StrCat("data of step ", step), status);
    StepRecord record = gradients_->record(step, *reduced);
    record.skipped_batches = skipped_;
    const bool stop = reduced->stop_votes > 0;
    if (!std::isfinite(record.loss) || !std::isfinite(record.raw_grad_norm))
      return skip_step(record, *reduced, !std::isfinite(local.loss), stop);
    if (!leaving_.begin_commit()) return ExitCode::kPreempted;
    checkpoints_.apply_votes(*reduced);
    if (auto status = complete(record, GradientStep::divisor(*reduced)); !status.ok())
      return fail(absl::StrCat("update of step ", step), status, exit_code_of_step(status));
    if (stop || (at_end() && !evaluates())) (void)leaving_.claim(By::kLoop);
    leaving_.end_commit();
    // The peak is measured after the first step, because users wait for the line of this step.
    if (!stop && !at_end()) report_.measure_peak(*rank_model_);
    return after_step(step, stop);
  }

  // Completes a step within a commit. After an error no state is valid: the commit does not end.
  absl::Status complete(StepRecord& record, double weight) {
    checkpoints_.before_update();
    if (auto status = update(record, weight); !status.ok()) return status;
    record.collective_wait_seconds = gradients_->collective_wait_seconds();
    report_.finish(record, checkpoints_.take_stall());
    position_ += data_->samples_per_step();
    report_.publish(record);
    completed_ = record.step + 1;
    guard_.on_step();
    return absl::OkStatus();
  }

  absl::Status update(StepRecord& record, double weight) {
    const double clip = clip_factor(record.raw_grad_norm, config_.optimizer.clipping_threshold);
    record.grad_norm = record.raw_grad_norm * clip;
    const UpdateStep step{record.learning_rate, clip / weight, record.step + 1,
                          config_.init_weights_seed};
    if (auto status = rank_model_->update(step); !status.ok()) return status;
    if (!config_.writes_metrics()) return absl::OkStatus();
    const auto norm = gradients_->parameter_norm();
    if (norm.ok()) record.param_norm = *norm;
    return norm.status();
  }

  // Excludes the time until now from the steps. Called within a commit or under the lock.
  void restart_clock() { report_.restart_clock(checkpoints_.take_stall()); }

  ExitCode after_step(int64_t step, bool stop) {
    const bool is_due = evaluates();
    const ExitCode code = is_due && !stop ? evaluate(step) : ExitCode::kOk;
    if (code != ExitCode::kOk) return code;
    const bool last = at_end();
    // The next start makes up for an evaluation.
    if (stop && (!last || (is_due && config_.enable_checkpointing))) return stop_on_vote();
    const absl::Status status = save_if_due(last, stop);
    return status.ok() ? ExitCode::kOk : fail("checkpoint", status, exit_code_of_step(status));
  }

  absl::Status save_if_due(bool last, bool stop) {
    const std::lock_guard lock(mutex_);
    const bool due = checkpoints_.is_due(completed_, last) || (last && stop);
    absl::Status status = checkpoints_.collect();
    if (status.ok() && due) status = save(/*continues=*/!last);
    if (due) restart_clock();
    return status;
  }

  ExitCode evaluate(int64_t step) {
    const auto record = evaluation_->run(*rank_model_, step);
    if (!record.ok()) {
      const std::string at = absl::StrCat("evaluation after step ", step);
      if (!evaluation_->data_verdict().ok()) return leave_without_data(at, record.status());
      return leave_broken(at, record.status());
    }
    const std::lock_guard lock(mutex_);
    evaluation_->count(*record);
    checkpoints_.set_evaluation(evaluation_->progress());
    if (at_end()) (void)leaving_.claim(By::kLoop);
    const absl::Status status = evaluation_->publish(*record, report_.metrics());
    restart_clock();
    return status.ok() ? ExitCode::kOk : fail("eval_output", status, exit_code_of_step(status));
  }

  // Handles a step that is not finite. All ranks decide from the same reduced values.
  ExitCode skip_step(const StepRecord& record, const StepTail& reduced, bool own_loss_is_bad,
                     bool stop) {
    const auto culprit = blame_not_finite(
        context_.groups.world(), *rank_model_, *data_, position_, reduced, own_loss_is_bad,
        [&](const std::string& found) { print_error(absl::StrCat("step ", record.step), found); });
    if (!culprit.ok())
      return fail("not finite", culprit.status(), exit_code_of_step(culprit.status()));
    if (!leaving_.begin_commit()) return ExitCode::kPreempted;
    checkpoints_.apply_votes(reduced);
    const NotFiniteDecision decision = guard_.on_not_finite();
    const uint64_t end = position_ + data_->samples_per_step();
    if (leader())
      context_.err << not_finite_line(record, *culprit, position_, end - 1, decision) << std::endl;
    if (decision.action == NotFiniteAction::kAbort) {
      if (leaving_.claim(By::kLoop)) return ExitCode::kNotFinite;
      return await_other_exit(absl::InternalError("its loss or gradient is not finite"));
    }
    position_ = end;
    ++skipped_;
    if (decision.action == NotFiniteAction::kRollback) {
      const absl::Status status = restore(RestoreFrom::kSharedStorage);
      if (!status.ok()) return leave_broken("rollback", status);
      const std::string line = rollback_line(completed_, record.step, restored_samples_, end - 1);
      if (leader()) context_.err << line << std::endl;
    }
    restart_clock();
    const bool misses = misses_one();
    if (stop || (at_end() && !misses)) (void)leaving_.claim(By::kLoop);
    leaving_.end_commit();
    if (misses) return after_step(completed_ - 1, stop);
    return stop && !at_end() ? stop_on_vote() : ExitCode::kOk;
  }

  // Ends the training after a step or rollback has failed. If a stop was requested and this rank
  // saves alone, the loss of peers is not an error.
  ExitCode leave_broken(const std::string& where, const absl::Status& status) {
    if (!leaving_.claim(By::kLoop)) return await_other_exit(status);
    const ExitCode code = exit_code_of_step(status);
    if (code != ExitCode::kPeerLost || !context_.signals.stop || writers_)
      return explain(where, status, code);
    const std::lock_guard lock(mutex_);
    return save_and_stop(absl::OkStatus());
  }

  // Ends all ranks after a data fault. Saves before any rank exits: the first exit ends all ranks.
  ExitCode leave_without_data(const std::string& where, const absl::Status& why) {
    leaving_.expect_no_commit();
    if (!leaving_.claim(By::kLoop)) return await_other_exit(why);
    const ExitCode code = explain(where, why, exit_code_of_step(why));
    const absl::Status together = join_writers(/*wants_save=*/true).status();
    std::unique_lock lock(mutex_);
    if (leaving_.has_given_up()) return code;
    if (auto status = save_completed(together); !status.ok()) explain("checkpoint", status, code);
    lock.unlock();
    (void)context_.groups.world().barrier("data fault");
    return code;
  }

  ExitCode end() {
    if (!leaving_.claim(By::kLoop)) return await_other_exit(absl::OkStatus());
    const auto saves = join_writers(config_.save_checkpoint_on_completion || context_.signals.stop);
    const std::lock_guard lock(mutex_);
    absl::Status status = saves.status();
    if (status.ok() && *saves) status = save(/*continues=*/false);
    if (!status.ok()) return explain("checkpoint", status, exit_code_of_step(status));
    report_.end(completed_, data_->is_exhausted_at(position_));
    enter(Phase::kShutdown);
    return ExitCode::kOk;
  }

  ExitCode stop_on_vote() {
    if (!leaving_.claim(By::kLoop)) return await_other_exit(absl::OkStatus());
    const absl::Status together = join_writers(/*wants_save=*/true).status();
    const std::lock_guard lock(mutex_);
    return save_and_stop(together);
  }

  // Called by the thread that has claimed the leaving

  // Returns whether to save the state. No commit is in progress when the call returns.
  absl::StatusOr<bool> join_writers(bool wants_save) {
    if (writes_) return leave_together(writers_ ? &*writers_ : nullptr, leaving_, wants_save);
    leaving_.wait_for_expected_commit();
    return wants_save;
  }

  // Saves the state after the last completed step. `together` states whether the writers have met;
  // if not, only an existing save can be used. Called under the lock.
  absl::Status save_completed(const absl::Status& together) {
    const bool possible = together.ok() || checkpoints_.has_saved(completed_);
    return possible ? save(/*continues=*/false) : not_saved(completed_, together);
  }

  ExitCode save_and_stop(const absl::Status& together) {
    if (leaving_.has_given_up()) return ExitCode::kPreempted;
    const absl::Status status = save_completed(together);
    if (!status.ok()) return explain("checkpoint", status, exit_code_of_step(status));
    enter(Phase::kShutdown);
    report_.stop(completed_);
    return ExitCode::kPreempted;
  }

  absl::Status save(bool continues) {
    enter(Phase::kCheckpointSave);
    if (checkpoints_.checkpoint_is_due(completed_)) guard_.on_checkpoint();
    return continues ? checkpoints_.save(completed_, position_)
                     : checkpoints_.save_last(completed_, position_);
  }

  const TrainConfig& config_;
  const TrainContext& context_;
  std::unique_ptr<StepData> data_;
  std::unique_ptr<RankModel> rank_model_;
  std::optional<GradientStep> gradients_;
  std::unique_ptr<Evaluation> evaluation_;  // null: no evaluation
  Checkpointing checkpoints_;               // destroyed before the model that it saves
  StepReport report_;
  int64_t skipped_ = 0;  // batches that this process has skipped

  // The members below, and the state that checkpoints save, change only within commits.
  Leaving leaving_;
  const bool writes_;                  // this rank saves, alone or with other ranks
  std::optional<GroupPeers> writers_;  // set if several ranks save, which must leave together
  NotFiniteGuard guard_;
  int64_t completed_ = 0;          // steps applied to the parameters
  uint64_t position_ = 0;          // samples consumed by those steps and by skipped batches
  uint64_t restored_samples_ = 0;  // position_ of the state that restore() loaded
  // Held while checkpoints are collected or saved, or while rank 0 prints, outside of commits.
  std::mutex mutex_;
};

}  // namespace

ExitCode train(const TrainConfig& config, const TrainContext& context) {
  Trainer trainer(config, context);
  const bool saves = is_checkpoint_writer(context.groups.mesh(), context.groups.rank());
  context.signals.loop_begins(trainer, saves ? kVoteWait : kFollowersVoteWait);
  const ExitCode code = trainer.run();
  context.signals.loop_ends();
  return code;
}

}  // namespace muster::trainer
