// Dumps that programs write on request into the launch's folder:
//
//  dump                                     request: a byte into          result
//  NCCL's flight recorder, PyTorch 2.5+     nccl-trace-<rank>.pipe          nccl-trace-<rank>
//  GPU core, CUDA's driver                  cuda-core-<rank>-<pid>.pipe     cuda-core-<rank>-<pid>
//
// The programs create the pipes where their environment variables name them (PyTorch:
// ProcessGroupNCCL's DumpPipe; CUDA-GDB's manual, "GPU core dump support"). Programs without pipes
// are not waited for. Pipes and files belong to the rank and are untrusted.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/time.h"

namespace muster::worker {

// A larger dump does not help an investigation, and a full disk affects everything.
constexpr uint64_t kProgramDumpBytesMax = 256ULL << 20;

// Returns a rank's variables for dumps into `folder`; the operator and the job may override them.
std::map<std::string, std::string> program_dump_variables(const std::string& folder, Rank rank);

// Returns whether `name` in a launch's folder is such a dump or pipe.
bool is_program_dump(std::string_view name);

// The files requested from one rank.
struct RequestedDumps {
  std::vector<std::string> paths;
  int64_t unix_ns = 0;  // time of the request: older files belong to other dumps
};

// Requests all dumps that the rank's programs offer. Never blocks.
RequestedDumps request_program_dumps(const std::string& folder, Rank rank);

// Waits until all requested files exist and no longer grow, at most until `deadline`.
void wait_for_program_dumps(const std::vector<RequestedDumps>& requested, Instant deadline);

// Returns the rank's dumps for people: "PATH (1234 bytes)". Removes a dump above
// kProgramDumpBytesMax and reports that.
std::vector<std::string> find_program_dumps(const std::string& folder, Rank rank);

}  // namespace muster::worker
