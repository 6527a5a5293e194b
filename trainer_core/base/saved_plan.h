// A saved plan: the file of compiled_trainstep_file. `muster plan` writes it; commands that start
// the job, and each rank, read it and refuse a job that differs (saved_plan_check.h). It is JSON:
//
//   {"format": "muster-plan",
//    "version": 2,             readers refuse any other number
//    "checksum": "…",          XXH3 (128 bits) of the value of `plan`: compact, with sorted keys
//    "plan": {
//      "muster": "0.9.0",      version of the program that wrote the file
//      "libraries": {"oneDNN": "2.6.0"},               versions on the machine of `muster plan`
//      "machines": {"topology": "h100", "device": "NVIDIA H100 80GB HBM3", "has_backend": true,
//                   "memory_bytes": 84944093184, "nodes": 8, "devices_per_node": 8},
//      "config": {…},          TrainConfig, with all sizes, the mesh and the learning rates
//      "threads": 0,           CPU threads of a rank; 0: the ranks have devices
//      "schedule": ["f0.0 b0.0"],  the passes of each pipeline stage: micro-batch, run of layers
//      "layouts": [{"stage": 0, "packed": false, "device_bytes": 1,
//                   "buffers": [["name", "category", offset, bytes], …]}, …],
//      "device_bytes": 1,      device memory of the rank that needs the most, with reserves
//      "step_seconds": 0.5,    predicted time of a step without waits for data; 0: unknown
//      "communication_seconds": 0.1,                   the part that waits for communication
//      "read_seconds": 0,      time to read the data of a step from storage; 0: unknown
//      "checkpoint_seconds": 0.01,                     stalls for checkpoints per step, beside it
//      "algorithms": ["KEY\tWORDS", …],  lines of cuBLASLt's algorithms for these GEMMs
//      "memory": {…}, "step": {…}}}      for people; no program reads these two
//
// The checksum finds damage; it is no proof of origin. So no size or address of the file reaches an
// allocation: a rank computes its own layout, and compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// The file of a model with 1,000 layers has some 10 MiB.
constexpr size_t kSavedPlanBytesMax = size_t{64} << 20;

// The layout of the rank of a stage that needs the most memory. Its last buffer is the checkpoint
// staging buffer, which ranks without background saves do not have.
struct SavedLayout {
  int32_t stage = 0;
  bool packed = false;  // TrainConfig::packed()
  size_t device_bytes = 0;
  std::vector<PlannedBuffer> buffers = {};
};

struct SavedPlan {
  std::string path = {};  // for messages
  std::map<std::string, std::string> libraries = {};
  std::string topology = {}, device = {};
  bool has_backend = true;
  int32_t nodes = 1, devices_per_node = 1;
  TrainConfig config = {};
  int32_t threads = 0;
  std::vector<std::string> schedule = {};
  std::vector<SavedLayout> layouts = {};
  int64_t device_bytes = 0;
  double step_seconds = 0, communication_seconds = 0, read_seconds = 0, checkpoint_seconds = 0;
  std::vector<std::string> algorithms = {};
};

// Returns the content of the file for a value of `plan`.
std::string saved_plan_text(nlohmann::json plan);
// Returns a layout as in the file. `staging`: it has the checkpoint staging buffer.
nlohmann::json layout_to_json(const MemoryPlan& memory, int32_t stage, bool packed);

// Reads a file. Returns InvalidArgument, with the path, what is wrong and what to do, for anything
// but a complete plan of this version of Muster.
absl::StatusOr<SavedPlan> read_saved_plan(const std::string& path);
// Does the same with the parsed content of the file at `path`.
absl::StatusOr<SavedPlan> parse_saved_plan(const nlohmann::json& file, const std::string& path);

// Returns OK if `path` may be replaced: there is no file, it is empty, or it begins as a saved
// plan. Otherwise InvalidArgument, because a mistyped path must not destroy a file.
absl::Status check_replaceable(const std::string& path);

}  // namespace muster::trainer
