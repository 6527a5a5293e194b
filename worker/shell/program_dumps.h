// Dumps that programs make of themselves when they are asked, into the launch's folder:
//
//   what                                     asked by a byte into            answers with
//   NCCL's flight recorder, PyTorch 2.5+     nccl-trace-<rank>.pipe          nccl-trace-<rank>
//   GPU core, CUDA's driver                  cuda-core-<rank>-<pid>.pipe     cuda-core-<rank>-<pid>
//
// The programs make the pipes where variables of their environment say (PyTorch: ProcessGroupNCCL's DumpPipe; CUDA-GDB's manual, "GPU core
// dump support"). Other programs have none, and nothing is waited for. Pipes and files are the rank's, and may be anything.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/time.h"

namespace muster::worker {

// A larger one is no help to anybody who looks at an incident, and a disk that is full is trouble for all.
constexpr uint64_t kProgramDumpBytesMax = 256ULL << 20;

// What a rank in `folder` has to find in its environment, unless the operator or the job says otherwise.
std::map<std::string, std::string> program_dump_variables(const std::string& folder, Rank rank);

// Whether a file of a launch's folder is one of these, or a pipe.
bool is_program_dump(std::string_view name);

// What a rank was asked for: the files that are to come.
struct AskedDumps {
  std::vector<std::string> paths;
  int64_t unix_ns = 0;  // when it was asked: an older file is another dump's
};

// Asks for all that the rank's programs offer. Never waits.
AskedDumps ask_for_program_dumps(const std::string& folder, Rank rank);

// Waits until the files of all are there and grow no more, but not beyond `deadline`.
void wait_for_program_dumps(const std::vector<AskedDumps>& asked, Instant deadline);

// The rank's dumps, as people are told: "PATH (1234 bytes)". One that is larger than it may be is removed, and told so.
std::vector<std::string> find_program_dumps(const std::string& folder, Rank rank);

}  // namespace muster::worker
