// Saves checkpoints while training continues. A save has two halves:
//
//   begin() ── copies the state to the staging block ──▶ wait_staged() ── writes, syncs and
//   publishes the checkpoint ──▶ take()
//
// Forward and backward passes change neither parameters nor optimizer state, so the copy runs
// concurrently with them, and only the next update waits for it. One save is in flight at a time;
// the next one waits for its end. The memory plan includes the staging block. A copy-on-write child
// process would need memory only for pages that change, but an optimizer changes all of them, so it
// would need as much memory.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <absl/status/status.h>

#include "common/time/time.h"
#include "trainer_core/checkpoint/checkpoint.h"

namespace muster::trainer {

// The result of a save.
struct SaveOutcome {
  int64_t step = 0;
  absl::Status status;
  std::vector<std::string> notes;  // the notes of CheckpointStore::save
  Duration written_in{};           // time from the end of the copy to the published folder
  bool local = false;              // true: SaveCopy has saved it; false: the store
};

// Saves a copy of the state in a place other than the store, such as the node's memory. Called on
// the saver's thread. Errors and notes are as those of CheckpointStore::save.
using SaveCopy = std::function<absl::Status(
    const CheckpointInfo& info, const CheckpointBlocks& copy, std::vector<std::string>& notes)>;

// A saver and its thread. Called on one thread only, except is_saving().
class BackgroundSaver {
 public:
  // All references and pointers must outlive the saver. `staging` has room for the layout; it,
  // `store` and `peers` (may be null) must not be used by others while a save is in flight.
  // `on_end` is called on the saver's thread when a save has ended, before take() returns its
  // outcome. `memory` is the memory of the blocks that begin() copies.
  BackgroundSaver(const CheckpointStore& store, CheckpointLayout layout,
                  const CheckpointBlocks& staging, std::function<void(const SaveOutcome&)> on_end,
                  CheckpointPeers* peers = nullptr, const DeviceMemory& memory = host_memory());
  // Blocks until the save in flight has ended.
  ~BackgroundSaver();
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;

  // Begins a save to the store, or through `elsewhere` if that is not null. `source` must not
  // change before wait_staged() returns. Requires that the outcome of the previous save was taken.
  void begin(CheckpointInfo info, const CheckpointBlocks& source, SaveCopy elsewhere = nullptr);
  // Blocks until the copy is complete; returns at once if none is running.
  void wait_staged();
  // Returns whether a save is in flight. Thread-safe.
  bool is_saving() const;
  // Returns the outcome of a save that has ended; nullopt if there is none or it was returned
  // already.
  std::optional<SaveOutcome> take();
  // Blocks until the save in flight has ended. Returns its outcome, or that of an earlier save if
  // it was not taken; nullopt if there is none.
  std::optional<SaveOutcome> finish();

 private:
  // kIdle ──begin()──▶ kStaging ──copied──▶ kWriting ──published──▶ kEnded ──take()──▶ kIdle
  enum class State { kIdle, kStaging, kWriting, kEnded };

  void run();
  void save();
  bool is_staging() const;
  // The saver's thread page-locks the staging block piece by piece between saves, if `memory` is a
  // device's. Return whether a piece remains (has_unpinned), or lock the next piece (pin_piece).
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

  // The save in flight. Owned by the saver's thread from begin() until kEnded.
  CheckpointInfo info_;
  CheckpointBlocks source_;
  SaveCopy elsewhere_;
  SaveOutcome outcome_;

  // The bytes of the staging block that are page-locked: parameters first, then state. Used by the
  // saver's thread only.
  size_t pinned_bytes_ = 0;

  std::thread thread_;
};

}  // namespace muster::trainer
