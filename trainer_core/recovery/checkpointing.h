// The checkpoints of a rank: saves and restores them for the training loop, reports them, and
// handles failures. All ranks call the same functions after the same steps. Ranks that differ only
// along the data axis have the same state. The first of them is a writer: it saves and restores its
// shards (checkpoint.h); the others receive restored state by a broadcast along the data axis. Rank
// 0 leads the writers and prints the lines.
//
// Saves run in the background with async_checkpointing, the default (background_saver.h). Training
// then waits only before it changes parameters, until the copy of the state is complete, and before
// a save, until an earlier save is complete. Without async_checkpointing, training waits for the
// disk.
//
// Nodes store copies of the state in their memory between checkpoints with
// enable_emergency_checkpoint (local_checkpoints.h). Local saves use the same saver, which has one
// save in flight, and checkpoints have priority. A local save begins after the first step at which
// no rank is saving, which ranks report in the reduced sums of the step (step_tail.h), so training
// never waits for it. A failed local save prints a line and has no other effect.
//
// If a checkpoint cannot be saved, rank 0 prints a warning and training continues; earlier
// checkpoints are unchanged. After kSaveFailuresInARowMax failures in a row the job ends, because
// further work would be lost. The job ends at once if another attempt has become the owner of the
// directory, or if the last state of the training cannot be saved.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "common/time/time.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/checkpoint/background_saver.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/rank/group_peers.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/step_tail.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/recovery/local_checkpoints.h"
#include "trainer_core/startup/agreement.h"

namespace muster::trainer {

// The maximum number of failed saves in a row. A disk that was full for three periods will remain
// full, and users notice the end of a job sooner than a warning.
constexpr int kSaveFailuresInARowMax = 3;

// Returns "saved <what>: 223.9 MiB in 0.912 s (0.26 GB/s), training waited 0.004 s".
std::string saved_line(const std::string& what, uint64_t bytes, Duration written_in,
                       Duration stall);

// The checkpoints from which to restore. A rollback uses only those in shared storage, because
// local checkpoints were saved shortly before it and may contain its cause.
enum class RestoreFrom { kAnywhere, kSharedStorage };

// The checkpoints of one rank. Called on one thread at a time. All references must outlive this
// object.
class Checkpointing {
 public:
  Checkpointing(const TrainConfig& config, const TrainContext& context);

  // Opens the directory on all writers; rank 0 becomes its owner. `data` is the data order
  // (data_order.h) that checkpoints store.
  absl::Status open(const nlohmann::json& data);
  // Set the hash of the base of a run's adapters, or of its reference model, which checkpoints
  // store, and return whether it is set. restore() refuses the checkpoints of another base.
  // base_hash() is empty until then.
  void set_base_hash(std::string hash) { base_hash_ = std::move(hash); }
  bool knows_base() const { return !base_hash_.empty(); }
  const std::string& base_hash() const { return base_hash_; }
  // Record that the model's reference parameters are set, and return whether they are.
  void set_has_reference() { has_reference_ = true; }
  bool has_reference() const { return has_reference_; }
  // Sets what checkpoints store about evaluations. With keep_best_checkpoint, a checkpoint is due
  // if the newest evaluation is the best.
  void set_evaluation(const EvalProgress& progress);
  // Returns the same of the checkpoint that restore() has restored; on rank 0 only.
  const EvalProgress& evaluation() const { return evaluation_; }
  // Sets what checkpoints store about spikes.
  void set_spikes(const SpikeState& spikes) { spikes_ = spikes; }
  // Returns the same of the checkpoint that restore() has restored; on rank 0 only.
  const SpikeState& spikes() const { return spikes_; }
  // Sets the model whose state is saved and restored.
  void attach(RankModel& rank_model);
  // Blocks until the save in flight has ended, and restores the newest complete checkpoint on all
  // ranks; nullopt if there is none. Returns an error if the checkpoint has another data order
  // (judge_data_order) or another base (judge_base). With kSharedStorage, first removes all local
  // checkpoints.
  absl::StatusOr<std::optional<RestoredAt>> restore(RestoreFrom from);

  // Stores the votes of all ranks in a step: whether any rank requests a checkpoint, and whether
  // any rank is saving.
  void apply_votes(const StepTail& votes);
  // Returns whether a save is due after `step` completed steps: a checkpoint or, unless `last`, a
  // local checkpoint.
  bool is_due(int64_t step, bool last) const;
  // Returns whether a checkpoint is due, not counting local checkpoints.
  bool checkpoint_is_due(int64_t step) const;
  // Saves the state after `step` completed steps and `samples` consumed samples: a checkpoint if it
  // is due, otherwise a local checkpoint. An error must end the job.
  absl::Status save(int64_t step, uint64_t samples);
  // Saves the checkpoint that is due after `step` completed steps, if one is, at a later call of
  // save(), unless restore() comes first.
  void defer(int64_t step) { is_deferred_ = checkpoint_is_due(step); }
  bool is_deferred() const { return is_deferred_; }
  // Returns whether a checkpoint was requested that is not saved yet.
  bool is_requested() const { return requested_; }
  // Returns the step of the newest checkpoint; nullopt if there is none.
  std::optional<int64_t> newest_step() const {
    return saved_step_ < 0 ? std::nullopt : std::optional(saved_step_);
  }
  // Saves the state to which restore() has returned, with `samples` consumed samples, and blocks
  // until the save has ended. So a restart does not read the samples before these again. A failure
  // is handled as that of save(). An error must end the job.
  absl::Status save_restored(int64_t step, uint64_t samples);
  // Saves the last state of the training and blocks until the checkpoint exists. An error means
  // that it does not exist.
  absl::Status save_last(int64_t step, uint64_t samples);
  // Blocks until the save in flight has ended. Returns whether a checkpoint has the state after
  // `step` completed steps.
  bool has_saved(int64_t step);
  // Blocks until the copy of the state is complete. Called before parameters or optimizer state
  // change.
  void before_update();
  // Reports a background save that has ended since the last call. An error must end the job.
  absl::Status collect();
  // Makes saves in an object store retry for a shorter time from now on. Any thread.
  void hurry() { store_.hurry(); }
  // Blocks until the save in flight has ended, and reports it.
  void finish();
  // Removes the local checkpoints of the job. Called when the job is complete.
  void remove_local();

  // Returns whether a background save of a checkpoint, except a local checkpoint, is in progress.
  // Thread-safe after attach().
  bool is_saving() const { return is_busy() && !saves_locally_; }
  // Returns whether a background save of either kind is in progress. Thread-safe after attach().
  bool is_busy() const { return saver_ != nullptr && saver_->is_saving(); }

  // Returns the time for which training has waited for saves since the last call.
  Duration take_stall();

 private:
  // Adds the time between its construction and destruction to the stall, the time for which
  // training waits.
  class Stall {
   public:
    explicit Stall(Checkpointing& checkpoints)
        : checkpoints_(checkpoints), begin_(monotonic_now()) {}
    ~Stall() {
      const Duration waited = monotonic_now() - begin_;
      checkpoints_.stall_ += waited;
      checkpoints_.stall_of_save_ += waited;
      checkpoints_.context_.page.add_checkpoint_stall(to_seconds(waited));
    }
    Stall(const Stall&) = delete;
    Stall& operator=(const Stall&) = delete;

   private:
    Checkpointing& checkpoints_;
    Instant begin_;
  };

  bool leader() const { return context_.groups.rank() == 0; }
  bool writes() const {
    return is_checkpoint_writer(context_.groups.mesh(), context_.groups.rank());
  }
  // Returns null if there is only one writer.
  CheckpointPeers* peers() { return peers_.has_value() ? &*peers_ : nullptr; }
  void request();
  bool local_is_due(int64_t step) const;
  absl::Status of_restart(absl::Status status) const;
  absl::Status open_local();
  absl::Status save_locally(int64_t step, uint64_t samples);
  absl::StatusOr<std::optional<RestoredAt>> restore_local();
  absl::Status judge_local(const CheckpointInfo& found);
  absl::Status report_local(const SaveOutcome& outcome);
  // Returns whether neither a checkpoint nor the save in flight has the state after `step` steps.
  bool needs_save(int64_t step) const;
  void set_restored_spikes(const SpikeState& spikes);
  absl::Status judge(const CheckpointInfo& checkpoint);
  CheckpointInfo info(int64_t step, uint64_t samples) const;
  std::optional<SaveOutcome> wait_for_saver();
  SaveOutcome save_now(int64_t step, uint64_t samples);
  absl::Status report(const SaveOutcome& outcome);
  void publish(const SaveOutcome& outcome);

  const TrainConfig& config_;
  const TrainContext& context_;
  CheckpointStore store_;
  nlohmann::json data_;    // the data order
  std::string base_hash_;  // empty: the run has no base
  bool has_reference_ = false;
  EvalProgress evaluation_;
  SpikeState spikes_;
  bool has_other_data_ = false;  // the restored checkpoint has another data order
  bool best_is_due_ = false;     // the state of the best evaluation is not saved yet
  RankModel* rank_model_ = nullptr;
  std::optional<GroupPeers> peers_;  // group of the writers; nullopt: there is only one
  // Set on writers with async_checkpointing, and on all ranks with local checkpoints.
  std::unique_ptr<BackgroundSaver> saver_;

  std::optional<LocalCheckpoints> local_;
  int64_t local_step_ = 0;                   // step of the newest save of either kind
  bool peers_saving_ = false;                // a rank was saving when the step's sums were reduced
  std::atomic<bool> saves_locally_ = false;  // the save in flight is a local one
  bool local_reported_ = false;              // the line about local saves was printed

  // The thread that entered the phase of the save waits for it. Set by that thread.
  std::atomic<bool> waits_for_save_ = false;
  bool requested_ = false;    // a checkpoint was requested
  bool is_deferred_ = false;  // a checkpoint was due that is not saved yet
  bool copying_ = false;      // the newest save may still be copying the state
  int64_t saved_step_ = -1;   // step of the newest checkpoint, or of the one in flight
  int failures_in_a_row_ = 0;
  Duration stall_{};          // since the last take_stall()
  Duration stall_of_save_{};  // stall of the newest save
};

}  // namespace muster::trainer
