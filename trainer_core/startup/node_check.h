// Checks whether this machine can run ranks. A node must pass before it receives ranks again after
// it was lost or suspected. The check takes a fraction of a second, because a job may wait for it;
// faults that take longer to find are left to the next failure.
//
//   cores      on each core that this process may use, a matmul of small integers whose every bit
//              is known: a core that computes wrongly is named
//   memory     a pattern and its complement, written and read back
//   work_dir   a file, written, made durable and read back
//   shm        a file in /dev/shm, through which ranks of one node communicate
//   loopback   a connection to this machine itself
//   clock      the wall clock is set, and both clocks advance
//
// Blocks. A disk may hang, so the caller enforces a deadline. Joins its threads before it returns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/time.h"

namespace muster::trainer {

struct NodeCheckOptions {
  std::string work_dir;
  std::string shm_dir = "/dev/shm";  // for local checkpoints; a full one is only a note
  size_t memory_bytes = size_t{64} << 20;
};

struct NodeCheckPart {
  std::string name;
  absl::Status status;  // the fault; OK if there is none
  std::string text;     // what was checked, and how fast it was
  Duration time{};
};

// Runs every part in the order above, also after one that failed.
std::vector<NodeCheckPart> check_node(const NodeCheckOptions& options);

// Returns one line: the faults of the parts that failed, or that there are none.
std::string node_check_sentence(const std::vector<NodeCheckPart>& parts);
// Returns one line: what was checked in the parts that passed.
std::string node_check_details(const std::vector<NodeCheckPart>& parts);
bool node_check_passed(const std::vector<NodeCheckPart>& parts);

}  // namespace muster::trainer
