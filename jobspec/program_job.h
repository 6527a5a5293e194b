// A job whose ranks run a program of the user's own. Pure.
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
  std::string working_directory;     // absolute; the program's, and where relative paths start
  std::string name;                  // empty: default_name
  std::string default_name;
  std::string output_directory;  // empty: the name, in the working directory
  std::string user;
  int32_t nodes = 1;
  int32_t ranks_per_node = 1;
  int32_t priority = 0;
  int32_t restarts_max = 3;  // base.yml's default, too
  int64_t hang_after_seconds = 0;
  int32_t spares = 0;
  int32_t min_nodes = 0;  // 0: all
  int32_t gpus_per_rank = kGpusOfSlot;
  std::map<std::string, std::string> environment;
};

// InvalidArgument names the option that is wrong.
absl::StatusOr<v1::JobSpec> program_job(const ProgramRequest& request);

// What people call it: "train.py" of `python3 -u train.py --lr 1`. Of characters that a job's name may have.
std::string program_name(const std::vector<std::string>& command);

}  // namespace muster::jobspec
