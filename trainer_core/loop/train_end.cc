// The part of Trainer that ends a training: errors, requests to stop, and the last save.
#include <mutex>

#include "trainer_core/loop/trainer.h"
#include "trainer_core/recovery/failure.h"

namespace muster::trainer {
void Trainer::leave(EndProcess end_process) {
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

bool Trainer::give_up(EndProcess end_process) {
  if (!leaving_.started()) return false;
  // The loop holds the mutex while it waits for a save, but not during a background save.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || checkpoints_.is_saving() || !leaving_.give_up()) return false;
  print_error("leaving", kPeersStayedAway);
  end_process(ExitCode::kPreempted);
  context_.groups.abort();  // in tests, peers see the end of this rank
  return true;
}

ExitCode Trainer::fail(const std::string& where, const absl::Status& status, ExitCode code) {
  return leaving_.claim(By::kLoop) ? explain(where, status, code) : await_other_exit(status);
}

ExitCode Trainer::await_other_exit(const absl::Status& why) {
  leaving_.wait_until_left(why);
  return ExitCode::kPreempted;
}

ExitCode Trainer::explain(const std::string& where, const absl::Status& status, ExitCode code) {
  print_error(where, std::string(status.message()));
  return code;
}

void Trainer::print_error(const std::string& where, std::string_view what) {
  context_.err << "rank " << context_.groups.rank() << ": " << where << ": " << what << std::endl;
}

ExitCode Trainer::leave_broken(const std::string& where, const absl::Status& status) {
  if (!leaving_.claim(By::kLoop)) return await_other_exit(status);
  const ExitCode code = exit_code_of_step(status);
  if (code != ExitCode::kPeerLost || !context_.signals.stop || writers_)
    return explain(where, status, code);
  const std::lock_guard lock(mutex_);
  return save_and_stop(absl::OkStatus());
}

ExitCode Trainer::leave_without_data(const std::string& where, const absl::Status& why) {
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

ExitCode Trainer::end() {
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

ExitCode Trainer::stop_on_vote() {
  if (!leaving_.claim(By::kLoop)) return await_other_exit(absl::OkStatus());
  const absl::Status together = join_writers(/*wants_save=*/true).status();
  const std::lock_guard lock(mutex_);
  return save_and_stop(together);
}

absl::StatusOr<bool> Trainer::join_writers(bool wants_save) {
  if (writes_) return leave_together(writers_ ? &*writers_ : nullptr, leaving_, wants_save);
  leaving_.wait_for_expected_commit();
  return wants_save;
}

absl::Status Trainer::save_completed(const absl::Status& together) {
  if (guard_.in_spike()) {
    checkpoints_.finish();
    if (leader()) {
      context_.err << "no checkpoint is saved of the last steps, because they are spikes or not "
                      "finite: the next start begins with step "
                   << checkpoints_.newest_step().value_or(0) << std::endl;
    }
    return absl::OkStatus();
  }
  const bool possible = together.ok() || checkpoints_.has_saved(completed_);
  return possible ? save(/*continues=*/false) : not_saved(completed_, together);
}

ExitCode Trainer::save_and_stop(const absl::Status& together) {
  if (leaving_.has_given_up()) return ExitCode::kPreempted;
  const absl::Status status = save_completed(together);
  if (!status.ok()) return explain("checkpoint", status, exit_code_of_step(status));
  enter(Phase::kShutdown);
  report_.stop(completed_);
  return ExitCode::kPreempted;
}

absl::Status Trainer::save(bool continues) {
  enter(Phase::kCheckpointSave);
  if (!continues || checkpoints_.checkpoint_is_due(completed_)) guard_.on_checkpoint();
  checkpoints_.set_spikes(guard_.state());
  return continues ? checkpoints_.save(completed_, position_)
                   : checkpoints_.save_last(completed_, position_);
}

}  // namespace muster::trainer
