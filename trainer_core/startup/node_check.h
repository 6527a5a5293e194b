// Whether this machine is good for ranks: what a node has to pass after it was lost or suspected, before anything is placed on it again. Takes a
// fraction of a second, because a job may wait for it; what takes longer to find is found by the next fault.
//
//   cores      on each core that this process may use, a matrix product of small whole numbers, whose every bit is known: a core that computes
//              wrongly is named
//   memory     a pattern and its complement written and read back
//   work_dir   a file written, made durable and read back
//   shm        a file in /dev/shm, where ranks of one node meet
//   loopback   a connection to this machine itself
//   clock      the wall clock is set, and both clocks go
//
// Blocks; whoever starts it keeps a deadline, because a disk may hang. Its own threads are joined when it returns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "common/time.h"

namespace muster::trainer {

struct NodeCheckOptions {
  std::string work_dir;
  std::string shm_dir = "/dev/shm";  // for local checkpoints; that it is full is a remark
  size_t memory_bytes = size_t{64} << 20;
};

struct NodeCheckPart {
  std::string name;
  absl::Status status;  // what is wrong
  std::string text;     // what was looked at, and how fast it was
  Duration time{};
};

// Every part, also after one that failed, in the order above.
std::vector<NodeCheckPart> check_node(const NodeCheckOptions& options);

// One line: what is wrong with the parts that failed, or that nothing is.
std::string node_check_sentence(const std::vector<NodeCheckPart>& parts);
// One line: what was looked at in those that passed.
std::string node_check_details(const std::vector<NodeCheckPart>& parts);
bool node_check_passed(const std::vector<NodeCheckPart>& parts);

}  // namespace muster::trainer
