// Saves checkpoints while the training goes on. A save has two halves:
//
//   begin() ── copy the numbers to the staging block ──▶ wait_staged() ── write, sync, publish ──▶ take()
//
// Forward and backward change nothing that a checkpoint holds, so the copy runs beside them, and only the update that follows
// waits for it. One save is in flight; who wants another waits for it first. What the copy takes in memory is in the memory
// plan: a copy-on-write child process would take it only for pages that change, which an optimizer does to all of them.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <absl/status/status.h>

#include "common/time.h"
#include "trainer_core/checkpoint/checkpoint.h"

namespace muster::trainer {

struct SaveOutcome {
  int64_t step = 0;
  absl::Status status;
  std::vector<std::string> notes;  // CheckpointStore::save's
  Duration written_in{};           // from the copy's end to the published folder
  bool local = false;              // SaveCopy's, not the store's
};

// Saves a copy of the state elsewhere than in the store. On the saver's thread; errors and notes are as of CheckpointStore::save.
using SaveCopy = std::function<absl::Status(
    const CheckpointInfo& info, const CheckpointBlocks& copy, std::vector<std::string>& notes)>;

// One thread uses it; a second one of its own writes.
class BackgroundSaver {
 public:
  // `store` and `staging`, which has room for the layout, outlive the saver; while a save is in flight nobody else uses them.
  // `on_end` is called on the saver's thread as soon as a save has ended, before anybody can see it by other means.
  // `peers`, where there are any, are used by the saver's thread alone while a save is in flight, and outlive it, too; so does `memory`, the
  // sources'.
  BackgroundSaver(const CheckpointStore& store, CheckpointLayout layout,
                  const CheckpointBlocks& staging, std::function<void(const SaveOutcome&)> on_end,
                  CheckpointPeers* peers = nullptr, const DeviceMemory& memory = host_memory());
  // Waits for the save in flight.
  ~BackgroundSaver();
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;

  // Begins to save, by `elsewhere` where there is one. `source` must not change before wait_staged() has returned. Requires that the
  // last save's outcome was taken.
  void begin(CheckpointInfo info, const CheckpointBlocks& source, SaveCopy elsewhere = nullptr);
  // Returns at once when no copy is running.
  void wait_staged();
  // A save is in flight. Any thread.
  bool is_saving() const;
  // The outcome of a save that has ended, once.
  std::optional<SaveOutcome> take();
  // Waits for the save in flight; its outcome, or one that was not taken yet.
  std::optional<SaveOutcome> finish();

 private:
  // kIdle ──begin()──▶ kStaging ──copied──▶ kWriting ──published──▶ kEnded ──take()──▶ kIdle
  enum class State { kIdle, kStaging, kWriting, kEnded };

  void run();
  void save();
  bool is_staging() const;
  // On the saver's thread, between saves: pins a device's staging piece by piece.
  bool has_unpinned() const;
  void pin_piece();
  void enter(State state);

  const CheckpointStore& store_;
  const CheckpointLayout layout_;
  const CheckpointBlocks staging_;
  const std::function<void(const SaveOutcome&)> on_end_;
  CheckpointPeers* const peers_;
  const DeviceMemory& memory_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kIdle;
  bool leaving_ = false;

  // Of the save in flight: the saver's thread has them from begin() until kEnded.
  CheckpointInfo info_;
  CheckpointBlocks source_;
  SaveCopy elsewhere_;
  SaveOutcome outcome_;

  size_t pinned_bytes_ = 0;  // of the parameters, then of the state; the saver's thread's

  std::thread thread_;
};

}  // namespace muster::trainer
