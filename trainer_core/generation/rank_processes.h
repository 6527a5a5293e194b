// The follower processes of a tensor-parallel model (tensor_ranks.h), as rank 0 sees them, and the
// memory in which they report why they end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace muster::trainer {

// An error that a follower reports.
struct RankError;

class RankProcesses {
 public:
  // Allocates the shared memory for ranks 1 to `size` - 1.
  static absl::StatusOr<RankProcesses> make(int size);

  // Follower: stores the error with which this process ends.
  void report(int rank, const absl::Status& error);

  // The functions below are for rank 0.

  // Adds the process of the next rank.
  void add(pid_t pid) { pids_.push_back(pid); }
  // Returns the error of the first follower that has ended by itself. Followers also end because
  // they lost another rank; if there are only those, returns Unavailable with one of them.
  absl::Status check() const;
  // Returns the error of the follower whose end has caused `error` of an exchange, or `error`
  // itself. Waits for that end for a short time.
  absl::Status cause_of(const absl::Status& error) const;
  // Waits until the followers end, then kills those that remain. They end soon if rank 0 has left.
  void end(std::chrono::seconds wait = std::chrono::seconds(5));

 private:
  // The end of a follower.
  struct End {
    bool is_victim = false;  // it lost another rank, or rank 0
    absl::Status error;
  };

  RankProcesses() = default;
  std::optional<End> end_of(size_t follower) const;

  std::vector<pid_t> pids_;            // those of ranks 1, 2, …
  std::shared_ptr<RankError> errors_;  // one per rank
};

}  // namespace muster::trainer
