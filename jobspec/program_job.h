// A job whose ranks run the user's own program. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/gpu.h"
#include "muster/v1/muster.pb.h"

namespace muster::jobspec {

struct ProgramRequest {
  std::vector<std::string> command;  // at least one word
  std::string working_directory;     // absolute; of the program, and the base of relative paths
  std::string name;                  // empty: default_name
  std::string default_name;
  std::string output_directory;  // empty: the name, in the working directory
  std::string user;
  int32_t nodes = 1;
  int32_t ranks_per_node = 1;
  int32_t priority = 0;
  int32_t restarts_max = 3;  // the same as in base.yml
  int64_t hang_after_seconds = 0;
  int32_t spares = 0;
  int32_t min_nodes = 0;  // 0: all nodes
  int32_t gpus_per_rank = kGpusOfSlot;
  std::map<std::string, std::string> environment;
};

// InvalidArgument names the option that is wrong.
absl::StatusOr<v1::JobSpec> program_job(const ProgramRequest& request);

// Returns a name for people: "train.py" for `python3 -u train.py --lr 1`. It has only characters
// that are valid in a job's name.
std::string program_name(const std::vector<std::string>& command);

}  // namespace muster::jobspec
