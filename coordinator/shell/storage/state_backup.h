// A consistent copy of the state's database, made while the coordinator uses it.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace muster::coordinator {

// Returns the size of the database of the state in `state_dir` with its write-ahead log.
uint64_t state_bytes(const std::string& state_dir);

// A copy of the state in a file of the state folder, which the destructor removes. A process may
// have one at a time for each folder. Not thread-safe.
class StateBackup {
 public:
  // Copies the database with SQLite's backup interface and checks the copy's integrity. The copy is
  // the state of one moment; transactions that end later are not in it. It is a single file without
  // a write-ahead log, and has no store id: a coordinator that starts on it draws a new one, so
  // that workers stop the ranks of launches that are not in the copy.
  //
  // Blocks while it copies; the storage's thread continues to commit. Returns ResourceExhausted if
  // the disk has too little space for the copy, DataLoss if the copy is damaged, and soon Cancelled
  // once `stop` is requested.
  static absl::StatusOr<StateBackup> make(const std::string& state_dir,
                                          const std::stop_token& stop = {});
  // Removes what a process that ended during a backup has left.
  static void remove_left(const std::string& state_dir);

  ~StateBackup();
  StateBackup(StateBackup&& other) noexcept;
  StateBackup& operator=(StateBackup&&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit StateBackup(std::string path) : path_(std::move(path)) {}

  std::string path_;  // empty: moved from
};

}  // namespace muster::coordinator
