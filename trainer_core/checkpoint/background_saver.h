// Saves checkpoints while training continues. A save has two halves:
//
//   begin() ── copy the state to the staging block ──▶ wait_staged() ── write, sync, publish ──▶
//     take()
//
// Forward and backward passes change nothing that a checkpoint holds, so the copy runs beside them,
// and only the next update waits for it. One save is in flight at a time; the next one must wait
// for it. The memory plan includes the staging block. A copy-on-write child process would need
// extra memory only for changed pages, but an optimizer changes all of them.
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
  std::vector<std::string> notes;  // of CheckpointStore::save
  Duration written_in{};           // from the copy's end to the published folder
  bool local = false;              // true: saved by SaveCopy and not by the store
};

// Saves a copy of the state elsewhere than in the store. Called on the saver's thread; errors and
// notes as of CheckpointStore::save.
using SaveCopy = std::function<absl::Status(
    const CheckpointInfo& info, const CheckpointBlocks& copy, std::vector<std::string>& notes)>;

// Used by one thread; a second, internal thread writes.
class BackgroundSaver {
 public:
  // `store` and `staging`, which has room for the layout, must outlive the saver and are not used
  // by others while a save is in flight. `on_end` is called on the saver's thread as soon as a save
  // has ended, before its outcome is visible otherwise. `peers`, if any, are used only by the
  // saver's thread while a save is in flight. `peers` and `memory`, which holds the sources, must
  // outlive the saver, too.
  BackgroundSaver(const CheckpointStore& store, CheckpointLayout layout,
                  const CheckpointBlocks& staging, std::function<void(const SaveOutcome&)> on_end,
                  CheckpointPeers* peers = nullptr, const DeviceMemory& memory = host_memory());
  // Waits for the save in flight.
  ~BackgroundSaver();
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;

  // Begins a save, through `elsewhere` if given. `source` must not change before wait_staged()
  // returns. Requires that the last save's outcome was taken.
  void begin(CheckpointInfo info, const CheckpointBlocks& source, SaveCopy elsewhere = nullptr);
  // Blocks until the copy is complete; returns at once if none is running.
  void wait_staged();
  // Returns whether a save is in flight. Any thread.
  bool is_saving() const;
  // Returns the outcome of an ended save, once.
  std::optional<SaveOutcome> take();
  // Waits for the save in flight. Returns its outcome, or an earlier one that was not taken.
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

  // State of the save in flight; owned by the saver's thread from begin() until kEnded.
  CheckpointInfo info_;
  CheckpointBlocks source_;
  SaveCopy elsewhere_;
  SaveOutcome outcome_;

  // Pinned bytes of the staging: its parameters, then its state. Used by the saver's thread only.
  size_t pinned_bytes_ = 0;

  std::thread thread_;
};

}  // namespace muster::trainer
