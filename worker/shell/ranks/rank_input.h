// The standard input of a program's rank 0: this worker's own, which `muster run` passes on.
#pragma once

#include <memory>

#include <absl/status/status.h>

#include "common/process/input_mark.h"
#include "common/process/read_watch.h"

namespace muster::worker {

// An attempt may read the input to its end. The next attempt reads a file from its start again, but
// cannot do so with a pipe. A program that finds no input may succeed without having done anything
// (`python3 -`). Called on the event loop's thread only.
class RankInput {
 public:
  // `fd`: the input, which outlives this object. `first`: how it stood before the first attempt; a
  // worker that replaces a dead one gets the same.
  RankInput(int fd, InputMark first)
      : fd_(fd), first_(first), watch_(first.is_unread() ? ReadWatch::start(fd) : nullptr) {}

  // Prepares the input for the next attempt's rank 0. Returns PermissionDenied, which is not
  // retried, if the input may have given something to an earlier attempt and has ended. A pipe that
  // was not read stops no attempt: many launchers and CI systems pass one and close it.
  absl::Status prepare() const;
  int fd() const { return fd_; }

 private:
  const int fd_;
  const InputMark first_;
  const std::unique_ptr<ReadWatch> watch_;  // null: unknown whether the input was read
};

}  // namespace muster::worker
