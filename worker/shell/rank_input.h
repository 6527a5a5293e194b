// The standard input of a program's rank 0: this worker's own, which `muster run` passes on.
#pragma once

#include <sys/types.h>

#include <optional>

#include <absl/status/status.h>

namespace muster::worker {

// An attempt may read the input to its end. A file begins anew for the next one; a pipe cannot, and
// a program that finds no input may succeed without having done anything (`python3 -`). Called on
// the event loop's thread only.
class RankInput {
 public:
  // `fd`: the input, which outlives this object.
  explicit RankInput(int fd);

  // Prepares the input for the next attempt's rank 0. Returns PermissionDenied, which is not
  // retried, if an earlier attempt has read a pipe to its end.
  absl::Status prepare();
  int fd() const { return fd_; }

 private:
  const int fd_;
  const std::optional<off_t> start_;  // of a file
  bool had_data_ = false;             // at some attempt's start
};

}  // namespace muster::worker
