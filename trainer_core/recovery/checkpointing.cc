#include "trainer_core/recovery/checkpointing.h"

#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "common/text/number_text.h"
#include "trainer_core/base/units.h"
#include "trainer_core/checkpoint/adapters.h"
#include "trainer_core/input/data_order.h"
#include "trainer_core/recovery/failure.h"

namespace muster::trainer {
namespace {

// Training has begun, so the directory was good before: it is away.
absl::Status of_failed_save(absl::Status status) {
  return is_of_storage(status) ? storage_away(std::move(status)) : status;
}

// A plan belongs to one run. Versions of Muster without plans cannot read its keys.
TrainConfig without_plan(TrainConfig config) {
  config.compiled_trainstep_file.clear();
  config.planned_step_seconds = config.planned_communication_seconds = 0;
  config.planned_data_seconds = config.planned_checkpoint_seconds = 0;
  return config;
}

}  // namespace

std::string saved_line(const std::string& what, uint64_t bytes, Duration written_in,
                       Duration stall) {
  constexpr double kGiga = 1e9;
  const double seconds = to_seconds(written_in);
  return absl::StrFormat("saved %s: %s MiB in %.3f s (%s GB/s), training waited %.3f s", what,
                         fixed_text(static_cast<double>(bytes) / kMiB, 1), seconds,
                         fixed_text(static_cast<double>(bytes) / kGiga / seconds, 2),
                         to_seconds(stall));
}

Checkpointing::Checkpointing(const TrainConfig& config, const TrainContext& context)
    : config_(config),
      context_(context),
      store_(config.checkpoint_directory, config.max_checkpoints_to_keep,
             config.checkpoint_file_bytes),
      peers_(GroupPeers::of_writers(context.groups, kCheckpointChannel)) {
  store_.report_progress_to([&page = context.page](uint32_t saving_mib, uint32_t written_mib) {
    page.set_save_progress(saving_mib, written_mib);
  });
  // Entered again, a phase is not taken for a hang.
  store_.show_transfers([&context] { enter_phase(context, Phase::kCheckpointRestore); },
                        [this, &page = context.page] {
                          if (waits_for_save_)
                            page.set_phase(Phase::kCheckpointSave, monotonic_now());
                        });
}

absl::Status Checkpointing::open(const nlohmann::json& data) {
  data_ = data;
  if (!config_.enable_checkpointing) return absl::OkStatus();
  if (writes()) {
    if (auto status = store_.open(context_.owner, peers()); !status.ok())
      return of_restart(std::move(status));
  }
  return config_.enable_emergency_checkpoint ? open_local() : absl::OkStatus();
}

// An earlier attempt has saved in the directory, so the directory was good then: it is away.
absl::Status Checkpointing::of_restart(absl::Status status) const {
  const bool is_away = context_.known_checkpoint_step > 0 && is_of_storage(status);
  return is_away ? storage_away(std::move(status)) : status;
}

void Checkpointing::attach(RankModel& rank_model) {
  rank_model_ = &rank_model;
  if (!config_.enable_checkpointing || !config_.async_checkpointing) return;
  // Ranks that are not writers continue if there are local checkpoints, because they store copies
  // of other ranks.
  if (!writes() && !local_.has_value()) return;
  saver_ = std::make_unique<BackgroundSaver>(
      store_, rank_model.plan().checkpoint_layout(),
      writes() ? rank_model.staging().value() : CheckpointBlocks{},
      [this](const SaveOutcome& outcome) { publish(outcome); }, peers(),
      rank_model.backend().memory());
}

absl::StatusOr<std::optional<RestoredAt>> Checkpointing::restore(RestoreFrom from) {
  saved_step_ = -1;
  local_step_ = 0;
  evaluation_ = {};
  spikes_ = {};
  best_is_due_ = is_deferred_ = has_other_data_ = false;
  if (!config_.enable_checkpointing) return std::nullopt;
  // Waits for the save in flight and counts a failure: if a full disk makes all saves fail,
  // rollbacks would otherwise return to the same checkpoint forever.
  if (saver_ != nullptr) {
    if (const auto outcome = wait_for_saver()) {
      if (auto status = report(*outcome); !status.ok()) return status;
    }
  }
  if (local_.has_value() && from == RestoreFrom::kSharedStorage) local_->remove_saves();
  if (local_.has_value() && from == RestoreFrom::kAnywhere) {
    auto local = restore_local();
    if (local.ok() && local->has_value()) {
      evaluation_ = (*local)->evaluation;
      set_restored_spikes((*local)->spikes);
    }
    if (!local.ok() || local->has_value()) return local;
  }
  auto newest = restore_newest(
      context_.groups.of({.axes = {MeshAxis::kData}}), peers(), store_,
      [this](const CheckpointInfo& found) { return judge(found); }, *rank_model_, context_.out);
  // If the file system is not mounted on this node, the folder is empty, and the job would start
  // from step 0 without an error.
  if (newest.ok() && !newest->has_value() && context_.known_checkpoint_step > 0) {
    return storage_away(absl::InternalError(absl::StrCat(
        "an earlier attempt has saved step ", context_.known_checkpoint_step, " in ",
        config_.checkpoint_directory,
        ", and no checkpoint is there now: is the file system mounted on this node?")));
  }
  // A manifest of another version is FailedPrecondition, and a retry reads the same one.
  if (!newest.ok() && !absl::IsFailedPrecondition(newest.status()))
    return of_restart(newest.status());
  if (newest.ok() && newest->has_value()) {
    saved_step_ = (*newest)->step;
    context_.page.set_checkpoint_step(saved_step_);
    local_step_ = saved_step_;
    evaluation_ = (*newest)->evaluation;
    set_restored_spikes((*newest)->spikes);
  }
  return newest;
}

// Other data may have another level of the loss.
void Checkpointing::set_restored_spikes(const SpikeState& spikes) {
  spikes_ = spikes;
  if (has_other_data_) spikes_ = {.skipped_updates = spikes.skipped_updates};
}

absl::Status Checkpointing::judge(const CheckpointInfo& checkpoint) {
  if (auto status = judge_base(config_, base_hash_, checkpoint); !status.ok()) return status;
  const auto note = judge_data_order(config_, checkpoint, data_);
  has_other_data_ = note.ok() && !note->empty();
  if (has_other_data_) context_.out << *note << std::endl;
  return note.status();
}

void Checkpointing::set_evaluation(const EvalProgress& progress) {
  if (progress.metric.empty()) return;
  evaluation_ = progress;
  // A checkpoint that was saved before the evaluation may be replaced by one that records it.
  if (saved_step_ == progress.evaluated_step) saved_step_ = -1;
  best_is_due_ = config_.eval.keep_best_checkpoint && progress.is_best(progress.evaluated_step);
}

void Checkpointing::request() {
  requested_ = config_.enable_checkpointing;
  if (!requested_ && leader())
    context_.err << "no checkpoint is saved on request: enable_checkpointing is False" << std::endl;
}

void Checkpointing::apply_votes(const StepTail& votes) {
  if (votes.checkpoint_votes > 0) request();
  peers_saving_ = votes.saving_votes > 0;
}

bool Checkpointing::checkpoint_is_due(int64_t step) const {
  return requested_ || is_deferred_ || best_is_due_ || step % config_.checkpoint_period == 0;
}

bool Checkpointing::is_due(int64_t step, bool last) const {
  return checkpoint_is_due(step) || (!last && local_is_due(step));
}

bool Checkpointing::has_saved(int64_t step) {
  finish();
  return !needs_save(step);
}

bool Checkpointing::needs_save(int64_t step) const {
  return config_.enable_checkpointing && step > 0 && step != saved_step_;
}

CheckpointInfo Checkpointing::info(int64_t step, uint64_t samples) const {
  TrainConfig config = without_plan(config_);
  config.sample_begin_id = sample_begin_id(data_);
  return {.folder = "",
          .step = step,
          .samples = samples,
          .config = to_json(config),
          .data = data_,
          .base_hash = base_hash_,
          .evaluation = evaluation_,
          .spikes = spikes_};
}

absl::Status Checkpointing::save(int64_t step, uint64_t samples) {
  if (!checkpoint_is_due(step)) return save_locally(step, samples);
  // An upload may take longer than a period, and a store may not respond for a long time: training
  // does not wait for it. All ranks have the same votes.
  if (store_.is_remote() && peers_saving_ && config_.async_checkpointing && !best_is_due_) {
    requested_ = true;
    return absl::OkStatus();
  }
  requested_ = is_deferred_ = best_is_due_ = false;
  local_step_ = step;
  // Waits first, because the result of the earlier save determines on all writers whether there is
  // state to save.
  if (saver_ != nullptr) {
    if (const auto before = wait_for_saver()) {
      if (auto status = report(*before); !status.ok()) return status;
    }
  }
  if (!needs_save(step)) return absl::OkStatus();
  if (!writes()) {
    saved_step_ = step;
    return absl::OkStatus();
  }
  stall_of_save_ = {};
  if (saver_ == nullptr) return report(save_now(step, samples));
  const Stall stall(*this);
  saves_locally_ = false;
  saver_->begin(info(step, samples), rank_model_->state());
  copying_ = true;
  saved_step_ = step;
  return absl::OkStatus();
}

absl::Status Checkpointing::save_restored(int64_t step, uint64_t samples) {
  saved_step_ = step;
  if (!writes()) return absl::OkStatus();
  stall_of_save_ = {};
  return report(save_now(step, samples));
}

absl::Status Checkpointing::save_last(int64_t step, uint64_t samples) {
  store_.hurry();
  finish();
  if (!needs_save(step) || !writes()) return absl::OkStatus();
  stall_of_save_ = {};
  const SaveOutcome outcome = save_now(step, samples);
  return outcome.status.ok() ? report(outcome) : of_failed_save(outcome.status);
}

// Saves the state itself instead of a copy. Nothing changes the state meanwhile.
SaveOutcome Checkpointing::save_now(int64_t step, uint64_t samples) {
  SaveOutcome outcome{.step = step, .status = {}, .notes = {}, .written_in = {}};
  {
    const Stall stall(*this);
    const absl::Cleanup waited = [this] { waits_for_save_ = false; };
    waits_for_save_ = true;
    const Instant begin = monotonic_now();
    outcome.status = store_.save(info(step, samples), rank_model_->plan().checkpoint_layout(),
                                 rank_model_->fetch_state(), outcome.notes, peers());
    outcome.written_in = monotonic_now() - begin;
  }
  saved_step_ = step;
  publish(outcome);
  return outcome;
}

void Checkpointing::before_update() {
  if (!std::exchange(copying_, false)) return;
  const Stall stall(*this);
  saver_->wait_staged();
}

absl::Status Checkpointing::collect() {
  if (saver_ == nullptr) return absl::OkStatus();
  const auto outcome = saver_->take();
  return outcome ? report(*outcome) : absl::OkStatus();
}

void Checkpointing::finish() {
  store_.hurry();
  if (saver_ == nullptr) return;
  // The caller ends the training or rolls back, so a failed save is only reported.
  if (const auto outcome = wait_for_saver()) (void)report(*outcome);
}

// Blocks until the save in flight has ended. The stall is counted before the save is reported.
std::optional<SaveOutcome> Checkpointing::wait_for_saver() {
  const Stall stall(*this);
  const absl::Cleanup waited = [this] { waits_for_save_ = false; };
  waits_for_save_ = true;
  return saver_->finish();
}

Duration Checkpointing::take_stall() { return std::exchange(stall_, {}); }

// Shows a checkpoint on the progress page of the leader only, so that it is counted once. Called on
// the loop's thread or on the saver's, so that the page shows it as soon as it exists.
void Checkpointing::publish(const SaveOutcome& outcome) {
  if (!leader() || outcome.local) return;
  context_.page.end_checkpoint({.step = outcome.step,
                                .saved = outcome.status.ok(),
                                .seconds = to_seconds(outcome.written_in)});
}

absl::Status Checkpointing::report(const SaveOutcome& outcome) {
  if (outcome.local) return report_local(outcome);
  // The leader has the same result and reports it.
  if (!leader()) {
    if (!outcome.status.ok()) saved_step_ = -1;
    return absl::OkStatus();
  }
  for (const std::string& note : outcome.notes) context_.err << note << std::endl;
  if (outcome.status.ok()) {
    failures_in_a_row_ = 0;
    context_.out << saved_line(absl::StrCat("checkpoint ", store_.folder(outcome.step)),
                               rank_model_->plan().checkpoint_layout().bytes(), outcome.written_in,
                               stall_of_save_)
                 << std::endl;
    return absl::OkStatus();
  }
  saved_step_ = -1;  // no checkpoint contains this state
  ++failures_in_a_row_;
  if (absl::IsAborted(outcome.status)) return outcome.status;
  const std::string message(outcome.status.message());
  if (failures_in_a_row_ < kSaveFailuresInARowMax) {
    context_.err << "warning: " << message << "; earlier checkpoints are unchanged and training "
                 << "continues"
                 << (evaluation_.is_best(outcome.step)
                         ? ", without the state of the best evaluation"
                         : "")
                 << " (failure " << failures_in_a_row_ << " in a row; number "
                 << kSaveFailuresInARowMax << " ends the job)" << std::endl;
    return absl::OkStatus();
  }
  const std::string all = absl::StrCat(message, "; the ", kSaveFailuresInARowMax - 1,
                                       " checkpoints before it failed, too");
  if (absl::IsResourceExhausted(outcome.status)) return absl::ResourceExhaustedError(all);
  const absl::Status ended = absl::AbortedError(all);
  return is_of_storage(outcome.status) ? storage_away(ended) : ended;
}

}  // namespace muster::trainer
