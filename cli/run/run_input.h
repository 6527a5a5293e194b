// The standard input that `muster run` gives to a program's rank 0.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "cli/run/terminal_input.h"

namespace muster::cli {

// Values of --stdin.
constexpr char kInputOfRank0[] = "rank0";
constexpr char kNoInput[] = "none";

// A pipe or a file is this program's own; of a terminal it is what is typed.
class RunInput {
 public:
  // `is_wanted`: whether a rank gets an input.
  static absl::StatusOr<RunInput> of(bool is_wanted);

  // Returns the descriptor, valid as long as this object; -1: none.
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  std::unique_ptr<TerminalInput> terminal_;
};

}  // namespace muster::cli
