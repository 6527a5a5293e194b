// Checks whether this machine can run ranks. After a node was lost or suspected, it must pass this
// check before it receives ranks again. The check takes less than a second, because a job may wait
// for it; it does not search for faults that take longer to find.
//
//   cores      each core that this process may use computes a GEMM of small integers with a known
//              result; the error has the cores with wrong results
//   memory     a pattern and its complement are written and read back
//   work_dir   a file is written, synced and read back
//   shm        the same in /dev/shm, through which ranks of a node communicate
//   loopback   the machine connects to itself
//   clock      the wall clock is set, and the wall clock and the monotonic clock advance
//
// The check blocks. It can hang if a disk hangs, so the caller must enforce a deadline. It joins
// its threads before it returns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/time/time.h"

namespace muster::trainer {

// The options of the check.
struct NodeCheckOptions {
  std::string work_dir;
  std::string shm_dir = "/dev/shm";        // if it is full, the part passes with a remark
  size_t memory_bytes = size_t{64} << 20;  // bytes of memory to check
};

// The result of a part.
struct NodeCheckPart {
  std::string name;
  absl::Status status;  // the fault; OK: the part has passed
  std::string text;     // the checked property and the measured speed
  Duration time{};      // duration of the part
};

// Runs all parts in the order above, even if a part fails.
std::vector<NodeCheckPart> check_node(const NodeCheckOptions& options);

// Returns a line with the faults of all parts, or a line that there are none.
std::string node_check_sentence(const std::vector<NodeCheckPart>& parts);
// Returns a line with the texts of the parts that have passed.
std::string node_check_details(const std::vector<NodeCheckPart>& parts);
// Returns whether all parts have passed.
bool node_check_passed(const std::vector<NodeCheckPart>& parts);

}  // namespace muster::trainer
