// Dumps that programs write on request into the launch's folder:
//
//  dump                                     request: a byte into          result
//  NCCL's flight recorder, PyTorch 2.5+     nccl-trace-<rank>.pipe          nccl-trace-<rank>
//  GPU core, CUDA's driver                  cuda-core-<rank>-<pid>.pipe     cuda-core-<rank>-<pid>
//
// The programs create the pipes at the paths in their environment variables (PyTorch:
// ProcessGroupNCCL's DumpPipe; CUDA-GDB's manual, "GPU core dump support"). No request is sent to a
// program without pipes, and nothing waits for it. Pipes and files belong to the rank and are
// untrusted.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/ids.h"
#include "common/time/time.h"

namespace muster::worker {

// Maximum size of a dump. A larger dump does not help an investigation, and a full disk harms all
// programs of the node.
constexpr uint64_t kProgramDumpBytesMax = 256ULL << 20;

// Returns the environment variables that make a rank's programs write dumps into `folder`. The
// operator and the job may override these variables.
std::map<std::string, std::string> program_dump_variables(const std::string& folder, Rank rank);

// Returns whether the file `name` in a launch's folder is a dump or a pipe of the table above.
bool is_program_dump(std::string_view name);

// The dumps that were requested from one rank.
struct RequestedDumps {
  std::vector<std::string> paths;
  // time of the request in ns since the epoch; older files belong to other dumps
  int64_t unix_ns = 0;
};

// Requests all dumps that the rank's programs offer. Never blocks.
RequestedDumps request_program_dumps(const std::string& folder, Rank rank);

// Waits until all requested files exist and no longer grow, at most until `deadline`.
void wait_for_program_dumps(const std::vector<RequestedDumps>& requested, Instant deadline);

// Returns a text for each of the rank's dumps: "PATH (1234 bytes)". Removes a dump larger than
// kProgramDumpBytesMax; its text then reports the removal.
std::vector<std::string> find_program_dumps(const std::string& folder, Rank rank);

}  // namespace muster::worker
