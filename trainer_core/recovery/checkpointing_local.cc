// The part of Checkpointing for local checkpoints: when one is due, its report, and its restore.
#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "trainer_core/recovery/checkpointing.h"
#include "trainer_core/recovery/file_transfer.h"

namespace muster::trainer {

absl::Status Checkpointing::open_local() {
  local_.emplace(context_.local, config_.checkpoint_file_bytes, context_.groups);
  std::vector<std::string> notes;
  const absl::Status status = local_->open(notes);
  for (const std::string& note : notes) context_.err << note << std::endl;
  if (status.ok() || is_group_error(status)) return status;
  local_.reset();
  if (leader())
    context_.err << "warning: no local checkpoints: " << std::string(status.message()) << std::endl;
  return absl::OkStatus();
}

// A local checkpoint is due at the first step at or after a multiple of the period at which no rank
// is saving. All ranks make the same decision.
bool Checkpointing::local_is_due(int64_t step) const {
  const int64_t period = config_.local_checkpoint_period;
  return local_.has_value() && !peers_saving_ && step / period > local_step_ / period;
}

absl::Status Checkpointing::save_locally(int64_t step, uint64_t samples) {
  local_step_ = step;
  stall_of_save_ = {};
  const SaveCopy save = [this](const CheckpointInfo& info, const CheckpointBlocks& blocks,
                               std::vector<std::string>&) {
    return local_->save(info, rank_model_->plan().checkpoint_layout(), blocks);
  };
  if (saver_ != nullptr) {
    const CheckpointBlocks blocks = writes() ? rank_model_->state() : CheckpointBlocks{};
    const Stall stall(*this);
    saves_locally_ = true;
    saver_->begin(info(step, samples), blocks, save);
    copying_ = writes();
    return absl::OkStatus();
  }
  SaveOutcome outcome{.step = step, .status = {}, .notes = {}, .written_in = {}, .local = true};
  {
    const Stall stall(*this);
    const Instant begin = monotonic_now();
    const CheckpointBlocks blocks = writes() ? rank_model_->fetch_state() : CheckpointBlocks{};
    outcome.status = save(info(step, samples), blocks, outcome.notes);
    outcome.written_in = monotonic_now() - begin;
  }
  return report_local(outcome);
}

// Prints a line for the first save and for every change between success and failure. With short
// steps, a line for each save would be too many.
absl::Status Checkpointing::report_local(const SaveOutcome& outcome) {
  if (!leader()) return absl::OkStatus();
  const std::string what = absl::StrCat("local checkpoint of step ", outcome.step);
  if (!outcome.status.ok()) {
    context_.err << "warning: " << what
                 << " is not saved: " << std::string(outcome.status.message())
                 << "; the earlier one remains" << std::endl;
  } else if (!local_reported_) {
    context_.out << saved_line(what, rank_model_->plan().checkpoint_layout().bytes(),
                               outcome.written_in, stall_of_save_)
                 << "; so are later ones, every " << config_.local_checkpoint_period << " steps"
                 << std::endl;
  }
  local_reported_ = outcome.status.ok();
  return absl::OkStatus();
}

// Checks that a local checkpoint, which is known to belong to this job, has the config and the data
// order of this run.
absl::Status Checkpointing::judge_local(const CheckpointInfo& found) {
  for (const auto& [key, mine] :
       {std::pair("run_name", config_.run_name),
        std::pair("checkpoint_directory", config_.checkpoint_directory)}) {
    if (found.config.value(key, "") != mine)
      return absl::InvalidArgumentError(absl::StrCat("it has another ", key));
  }
  return judge(found);
}

absl::StatusOr<std::optional<RestoredAt>> Checkpointing::restore_local() {
  const Instant begin = monotonic_now();
  std::vector<std::string> notes;
  int64_t shared_step = 0;
  if (leader()) {
    const auto shared = store_.newest(notes, /*checksums=*/false);
    notes.clear();  // the restore of that checkpoint prints them again
    if (shared.ok() && shared->has_value()) shared_step = (*shared)->step;
  }
  const auto restored = local_->restore(
      rank_model_->plan().checkpoint_layout(), rank_model_->host_state(), shared_step,
      [this](const CheckpointInfo& found) { return judge_local(found); }, notes);
  if (leader())
    for (const std::string& note : notes) context_.out << note << std::endl;
  if (!restored.ok()) return restored.status();
  if (!restored->has_value()) return std::nullopt;
  const CheckpointInfo& found = (*restored)->info;
  auto at = share_restored(
      context_.groups.of({.axes = {MeshAxis::kData}}),
      std::optional(RestoredAt{found.step, found.samples, found.evaluation, found.spikes}),
      *rank_model_);
  if (!at.ok()) return at;
  // Makes a local save due after the next step: a new node has no copies yet, and no other node has
  // a copy of its state.
  local_step_ = std::max<int64_t>(found.step - config_.local_checkpoint_period, 0);
  if (!leader()) return at;
  if (shared_step > 0) context_.page.set_checkpoint_step(shared_step);
  context_.out << absl::StrFormat("restored local checkpoint of step %d (%s) in %.2f s", found.step,
                                  (*restored)->from, to_seconds(monotonic_now() - begin))
               << std::endl;
  return at;
}

void Checkpointing::remove_local() {
  if (local_.has_value()) local_->remove();
}

}  // namespace muster::trainer
