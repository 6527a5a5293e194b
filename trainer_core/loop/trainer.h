// A rank's training: its state, and the steps, rollbacks, saves and ends that change it. train.h
// describes the phases of the loop.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "common/process/exit_code.h"
#include "trainer_core/input/step_data.h"
#include "trainer_core/input/training_data.h"
#include "trainer_core/loop/evaluation.h"
#include "trainer_core/loop/gradient_step.h"
#include "trainer_core/loop/step_report.h"
#include "trainer_core/rank/group_peers.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/stop_signals.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/recovery/checkpointing.h"
#include "trainer_core/recovery/leaving.h"
#include "trainer_core/recovery/step_guard.h"

namespace muster::trainer {

// The training of a rank. run() is called once, on the thread of the loop; leave() and give_up() on
// the signal thread. The arguments of the constructor must outlive this object.
class Trainer : public RunningStep {
  using By = Leaving::By;

 public:
  Trainer(const TrainConfig& config, const TrainContext& context);

  // Trains until the end or an error, which it prints. Returns the exit code of the rank.
  ExitCode run();

  void leave(EndProcess end_process) override;
  bool give_up(EndProcess end_process) override;

 private:
  bool leader() const { return context_.groups.rank() == 0; }
  void enter(Phase phase) { enter_phase(context_, phase); }
  void print_error(const std::string& where, std::string_view what);

  // Everything before the first step
  absl::Status start();
  absl::Status open_files(TrainingData& data);
  absl::Status load_parameters();
  absl::Status restore(RestoreFrom from);

  // Return whether all steps or all data are used, or an evaluation ends the training.
  bool at_end() const { return is_last() || ends_early(); }
  bool is_last() const { return completed_ >= config_.steps || data_->is_exhausted_at(position_); }
  bool ends_early() const { return evaluation_ != nullptr && evaluation_->ends_training(); }
  bool evaluates() const { return evaluation_ && evaluation_->is_due(completed_, is_last()); }
  bool misses_one() const { return evaluation_ && evaluation_->is_missing(completed_, is_last()); }

  uint64_t next_position() const { return position_ + data_->samples_per_step(); }

  // Steps
  ExitCode loop();
  ExitCode run_step(int64_t step);
  // Completes a step within a commit, with or without its update. After an error no state is valid:
  // the commit does not end.
  absl::Status complete(StepRecord& record, double weight, bool updates);
  absl::Status update(const StepRecord& record, double weight);
  // Excludes the time until now from the steps. Called within a commit or under the lock.
  void restart_clock() { report_.restart_clock(checkpoints_.take_stall()); }
  ExitCode after_step(int64_t step, bool stop);
  absl::Status save_if_due(bool last, bool stop);
  ExitCode evaluate(int64_t step);
  // Handles a step that is not finite. All ranks decide from the same reduced values.
  ExitCode reject_not_finite(const StepRecord& record, const StepTail& reduced,
                             bool own_loss_is_bad, bool stop);
  // Ends the commit of a step that is not completed: continues with the next batch, from the newest
  // checkpoint after a rollback, or ends the training.
  ExitCode reject_step(int64_t step, StepAction action, bool stop);
  // Returns whether the training may continue.
  absl::StatusOr<bool> roll_back(int64_t failed_step);

  // Ends of the training (train_end.cc)

  // The loop cannot continue. If the signal thread has claimed the leaving, it reports the reason.
  ExitCode fail(const std::string& where, const absl::Status& status, ExitCode code);
  ExitCode await_other_exit(const absl::Status& why);
  ExitCode explain(const std::string& where, const absl::Status& status, ExitCode code);
  // Ends the training after a step or rollback has failed. If a stop was requested and this rank
  // saves alone, the loss of peers is not an error.
  ExitCode leave_broken(const std::string& where, const absl::Status& status);
  // Ends all ranks after a data fault. Saves before any rank exits: the first exit ends all ranks.
  ExitCode leave_without_data(const std::string& where, const absl::Status& why);
  ExitCode end();
  ExitCode stop_on_vote();

  // The next four functions are called by the thread that has claimed the leaving.

  // Returns whether to save the state. No commit is in progress when the call returns.
  absl::StatusOr<bool> join_writers(bool wants_save);
  // Saves the state after the last completed step. `together` states whether the writers have met;
  // if not, only an existing save can be used. Called under the lock.
  absl::Status save_completed(const absl::Status& together);
  ExitCode save_and_stop(const absl::Status& together);
  absl::Status save(bool continues);

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
  StepGuard guard_;
  int64_t completed_ = 0;          // steps, with or without an update
  uint64_t position_ = 0;          // samples consumed by those steps and by skipped batches
  uint64_t restored_samples_ = 0;  // position_ of the state that restore() loaded
  SpikeState restored_spikes_;     // the guard's state of the same
  // Held while checkpoints are collected or saved, or while rank 0 prints, outside of commits.
  std::mutex mutex_;
};

}  // namespace muster::trainer
