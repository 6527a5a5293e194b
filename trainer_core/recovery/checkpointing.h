// Checkpoints of one rank: saves them when the training loop requests it, reports them, and handles
// failures. Every rank calls the same functions after the same steps. Ranks along data have the
// same state, and the first of them writes and reads it. These first ranks are the writers: each
// saves its shards (checkpoint.h), and rank 0 leads them and prints the lines. The other ranks
// receive restored state by a broadcast along data.
//
// By default (async_checkpointing), saves run in the background (background_saver.h). Training
// waits for the rest of the copy only before it changes parameters, and for an earlier save that is
// not complete. Without it, training waits for the disk.
//
// If enable_emergency_checkpoint is set, nodes store copies in their memory between checkpoints
// (local_checkpoints.h) through the same saver: one save is in flight, and checkpoints have
// priority. A local save waits for the first step at which no rank is saving, which ranks report in
// the step's reduced sums (step_tail.h): training never waits for it. A failed one prints a line
// and has no other effect.
//
// A checkpoint that cannot be saved is a warning, and training continues: earlier checkpoints are
// untouched. After kSaveFailuresInARowMax failures in a row the job ends, because its work would be
// lost. It ends at once if another attempt has taken the directory, or if the last state is not
// saved.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "common/time.h"
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

// A disk that was full for three periods stays full, and users notice a restart sooner than a
// warning.
constexpr int kSaveFailuresInARowMax = 3;

// "saved <what>: 223.9 MiB in 0.912 s (0.26 GB/s), training waited 0.004 s"
std::string saved_line(const std::string& what, uint64_t bytes, Duration written_in,
                       Duration stall);

// A rollback restores from shared storage: local checkpoints are from just before the rollback and
// contain its cause.
enum class RestoreFrom { kAnywhere, kSharedStorage };

// Called on one thread at a time. All references outlive it.
class Checkpointing {
 public:
  Checkpointing(const TrainConfig& config, const TrainContext& context);

  // Rank 0 takes the directory, and all writers access it. `data` is the data order (data_order.h)
  // that checkpoints record.
  absl::Status open(const nlohmann::json& data);
  // Enables saves of `rank_model`.
  void attach(RankModel& rank_model);
  // Waits for the save in flight and restores the newest whole checkpoint on all ranks; nullopt if
  // there is none. Returns an error for a checkpoint with other data (judge_data_order).
  // kSharedStorage: removes all local checkpoints first.
  absl::StatusOr<std::optional<RestoredAt>> restore(RestoreFrom from);

  // Applies the votes of all ranks in a step: a request for a checkpoint, and background saves that
  // are not complete.
  void apply_votes(const StepTail& votes);
  // Whether a save is due after `step` completed steps: a checkpoint, or a local one unless `last`.
  bool is_due(int64_t step, bool last) const;
  // Whether a checkpoint is due, without local ones.
  bool checkpoint_is_due(int64_t step) const;
  // Saves the state after `step` completed steps, at position `samples` of the data: a checkpoint
  // if due, otherwise a local one. An error ends the job.
  absl::Status save(int64_t step, uint64_t samples);
  // Saves the last state: blocks until the checkpoint exists. An error means that it does not.
  absl::Status save_last(int64_t step, uint64_t samples);
  // Waits for the save in flight. Returns whether the state after `step` steps needs no save.
  bool has_saved(int64_t step);
  // Called before parameters or optimizer state change. Blocks until the copy is complete.
  void before_update();
  // Reports a save that has completed in the meantime. An error ends the job.
  absl::Status collect();
  // Waits for the save in flight and reports it.
  void finish();
  // Removes the job's local checkpoints, once the job is done.
  void remove_local();

  // Whether a background save of a checkpoint, not a local one, is in progress. Thread-safe after
  // attach().
  bool is_saving() const { return is_busy() && !saves_locally_; }
  // Whether a save of either kind is in progress. Thread-safe after attach().
  bool is_busy() const { return saver_ != nullptr && saver_->is_saving(); }

  // Returns how long training has waited for checkpoints since the last call.
  Duration take_stall();

 private:
  // Adds its own lifetime to the stall.
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
  bool writes() const { return writes_checkpoints(context_.groups.mesh(), context_.groups.rank()); }
  // Null if one rank holds everything.
  CheckpointPeers* peers() { return peers_.has_value() ? &*peers_ : nullptr; }
  void request();
  bool local_is_due(int64_t step) const;
  absl::Status open_local();
  absl::Status save_locally(int64_t step, uint64_t samples);
  absl::StatusOr<std::optional<RestoredAt>> restore_local();
  absl::Status judge_local(const CheckpointInfo& found) const;
  absl::Status report_local(const SaveOutcome& outcome);
  // Whether the state is in no checkpoint and in no save in flight.
  bool needs_save(int64_t step) const;
  absl::Status judge(const CheckpointInfo& checkpoint) const;
  CheckpointInfo info(int64_t step, uint64_t samples) const;
  std::optional<SaveOutcome> wait_for_saver();
  SaveOutcome save_now(int64_t step, uint64_t samples);
  absl::Status report(const SaveOutcome& outcome);
  void publish(const SaveOutcome& outcome);

  const TrainConfig& config_;
  const TrainContext& context_;
  CheckpointStore store_;
  nlohmann::json data_;  // the data order
  RankModel* rank_model_ = nullptr;
  std::optional<GroupPeers> peers_;  // the writers' group; nullopt if there is one writer
  // Set with async_checkpointing, on writers; with local checkpoints on all ranks.
  std::unique_ptr<BackgroundSaver> saver_;

  std::optional<LocalCheckpoints> local_;
  int64_t local_step_ = 0;                   // of the newest save of either kind that has begun
  bool peers_saving_ = false;                // a rank was saving when the step's sums were reduced
  std::atomic<bool> saves_locally_ = false;  // the save in flight is a local one
  bool local_reported_ = false;              // the line about local saves was printed

  bool requested_ = false;   // a checkpoint was requested
  bool copying_ = false;     // the newest save may still be copying the state
  int64_t saved_step_ = -1;  // of the newest checkpoint, or of the save in flight
  int failures_in_a_row_ = 0;
  Duration stall_{};          // since take_stall()
  Duration stall_of_save_{};  // of the newest save
};

}  // namespace muster::trainer
