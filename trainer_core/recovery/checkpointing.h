// What one rank does about checkpoints: how one is saved when the training loop wants it, what is said of it, and what becomes
// of one that fails. Every rank calls the same functions after the same steps. Of the ranks that have the same numbers, which are
// those along data, the first writes and reads: together they are the writers, each of which saves its shards (checkpoint.h) and
// of which rank 0 leads and speaks. The others get what is restored by a broadcast along data.
//
// async_checkpointing, the default, writes in the background (background_saver.h); the training waits for what is left of the
// copy when it is about to change parameters, and for the save before where that is not over yet. False: it waits for the disk.
//
// With enable_emergency_checkpoint nodes keep copies in their memory between checkpoints (local_checkpoints.h), by the same two
// halves: one save is in flight, and a checkpoint goes first. A local one waits for the first step at which no rank saves any more,
// which ranks say in the step's sums (step_tail.h): training never waits for it. One that fails is a line, and never more.
//
// A checkpoint that cannot be saved is a warning, and the training goes on: earlier checkpoints are untouched. After
// kSaveFailuresInARowMax of them the job ends, because what it computes would be lost; so it does at once when another attempt
// has taken the directory, and when the last state of all is not saved.
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

// A disk that was full for three periods will not empty itself, and the job's restart is noticed by more people than a warning.
constexpr int kSaveFailuresInARowMax = 3;

// "saved <what>: 223.9 MiB in 0.912 s (0.26 GB/s), training waited 0.004 s"
std::string saved_line(const std::string& what, uint64_t bytes, Duration written_in,
                       Duration stall);

// A rollback is from shared storage: what is in memory is of the moment before, and has what led to the rollback.
enum class RestoreFrom { kAnywhere, kSharedStorage };

// One thread at a time. All references outlive it.
class Checkpointing {
 public:
  Checkpointing(const TrainConfig& config, const TrainContext& context);

  // Rank 0 takes the directory, and all writers see it. `data` (data_order.h) is what checkpoints are of.
  absl::Status open(const nlohmann::json& data);
  // From here on `replica` can be saved.
  void attach(RankModel& rank_model);
  // Brings all ranks' replicas to the newest whole checkpoint, when the save in flight is over; none when there is none. One of
  // other data is an error (judge_data_order). From shared storage alone: all local ones are removed first.
  absl::StatusOr<std::optional<RestoredAt>> restore(RestoreFrom from);

  // What all ranks have voted for in a step that is not over: somebody wants a checkpoint; somebody's save in the background is not over.
  void hear(const StepTail& votes);
  // After `step` completed steps: a checkpoint is; or a local one is, which nothing saves when no step follows.
  bool is_due(int64_t step, bool last) const;
  // The former alone.
  bool checkpoint_is_due(int64_t step) const;
  // Saves the state after `step` completed steps, which is at position `samples` of the data, where it is due. An error ends the job.
  absl::Status save(int64_t step, uint64_t samples);
  // The same when no step comes after it: returns when the checkpoint is there. An error says that it is not.
  absl::Status save_last(int64_t step, uint64_t samples);
  // Whether of the state after `step` steps nothing is left to save, when the save in flight is over.
  bool has_saved(int64_t step);
  // To be called before parameters or optimizer state change.
  void before_update();
  // Reports a save that has ended meanwhile. An error ends the job.
  absl::Status collect();
  // Waits for the save in flight and reports it.
  void finish();
  // The job is done: its local checkpoints are removed.
  void remove_local();

  // A save runs in the background that somebody waits for: no local one. Any thread, once a replica is attached.
  bool is_saving() const { return is_busy() && !saves_locally_; }
  // Of either kind. As is_saving().
  bool is_busy() const { return saver_ != nullptr && saver_->is_saving(); }

  // How long the training stood still for checkpoints since the last call.
  Duration take_stall();

 private:
  // Counts the time of its life.
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
  // Null where one rank has all.
  CheckpointPeers* peers() { return peers_.has_value() ? &*peers_ : nullptr; }
  void ask();
  bool local_is_due(int64_t step) const;
  absl::Status open_local();
  absl::Status save_locally(int64_t step, uint64_t samples);
  absl::StatusOr<std::optional<RestoredAt>> restore_local();
  absl::Status judge_local(const CheckpointInfo& found) const;
  absl::Status report_local(const SaveOutcome& outcome);
  // Whether there is something to save that no checkpoint has, or is about to have.
  bool is_news(int64_t step) const;
  absl::Status judge(const CheckpointInfo& checkpoint) const;
  CheckpointInfo info(int64_t step, uint64_t samples) const;
  std::optional<SaveOutcome> wait_for_saver();
  SaveOutcome save_now(int64_t step, uint64_t samples);
  absl::Status report(const SaveOutcome& outcome);
  void show(const SaveOutcome& outcome);

  const TrainConfig& config_;
  const TrainContext& context_;
  CheckpointStore store_;
  nlohmann::json data_;  // in which order
  RankModel* rank_model_ = nullptr;
  std::optional<GroupPeers> peers_;  // of a writer: the others
  std::unique_ptr<BackgroundSaver>
      saver_;  // with async_checkpointing, of a writer; and of all with local checkpoints

  std::optional<LocalCheckpoints> local_;
  int64_t local_step_ = 0;                   // of the newest save of either kind that was begun
  bool others_save_ = false;                 // somebody did when the step's sums were made
  std::atomic<bool> saves_locally_ = false;  // the save in flight is a local one
  bool local_told_ = false;                  // that they are saved

  bool asked_ = false;
  bool copying_ = false;     // since the newest begin(), as far as this thread knows
  int64_t saved_step_ = -1;  // of the newest checkpoint, or of the save in flight
  int failures_in_a_row_ = 0;
  Duration stall_{};          // since take_stall()
  Duration stall_of_save_{};  // of the newest save
};

}  // namespace muster::trainer
