// The checks of `muster doctor`: they find what hinders a training on a machine, and name the
// remedy. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/finding.h"

namespace muster::cli {

// A part of `muster-trainer check-node`.
struct MachinePart {
  std::string name;  // "work_dir"
  bool passed = true;
  std::string text;  // the measured speed, or the fault
};

// A port of an InfiniBand, RoCE or EFA device.
struct FabricPort {
  std::string name;   // "mlx5_0 port 1"
  std::string layer;  // "InfiniBand", "Ethernet", or "Unknown" for EFA
  std::string state;  // "ACTIVE", "DOWN"
};

// The state of a machine. A value that cannot be read is nullopt, or empty.
struct MachineFacts {
  // "Debian GNU/Linux 12 (bookworm)", "6.1.0", "2.36"
  std::string distribution = {}, kernel = {}, c_library = {};
  std::string cpu = {};
  int32_t cpus = 0;
  std::string cpu_limit = {};                 // the file of the quota that limits `cpus`
  std::optional<uint64_t> memory_bytes = {};  // available
  std::string memory_limit = {};              // the limit that bounds it, " (limited by …)"

  std::string gpus = {};        // a sentence of muster-worker
  int32_t gpu_count = 0;        // that answer
  int32_t gpu_devices = 0;      // on the PCI bus
  std::string driver = {};      // "580.159.04"
  bool trains_on_gpus = false;  // this build
  std::vector<FabricPort> fabric = {};

  // Limits; nullopt: unlimited.
  std::optional<uint64_t> open_files = {}, processes = {}, locked_bytes = {};
  std::optional<uint64_t> shm_bytes = {};  // size of /dev/shm
  std::optional<bool> clock_synchronized = {};

  std::string folder = {};  // the folder that runs would use
  std::optional<uint64_t> folder_free_bytes = {};
  std::string cache = {};        // the user's cache folder
  std::string cache_error = {};  // why nothing can be written there

  std::vector<std::string> programs = {};  // optional ones that were found: "rclone"
  std::vector<std::string> absent = {};    // and others with their use: "py-spy (Python stacks)"

  std::vector<MachinePart> parts = {};
  std::string parts_error = {};  // why there are no parts
};

// Returns one finding per check.
std::vector<Finding> examine_machine(const MachineFacts& facts);

}  // namespace muster::cli
