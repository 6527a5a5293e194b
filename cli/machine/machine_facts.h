// Reads what `muster doctor` examines.
#pragma once

#include <string>

#include "cli/machine/machine_checks.h"
#include "common/process/control_groups.h"

namespace muster::cli {

// The roots of the kernel's and the system's files. Tests inject others.
struct DoctorRoots {
  MachineRoots machine = {};
  std::string sys = "/sys";
  std::string etc = "/etc";
};

// Returns the facts of this machine, for runs in `folder`, which must exist. Blocks for some tenths
// of a second, and up to a minute if NVIDIA's driver initialises GPUs. Runs muster-worker and
// muster-trainer. Writes 4 MiB to `folder` and removes them.
MachineFacts read_machine(const std::string& folder, const DoctorRoots& roots = {});

// The parts of read_machine() that read files.
std::string distribution_of(const std::string& etc);
int32_t nvidia_devices(const std::string& sys);
std::vector<FabricPort> fabric_ports(const std::string& sys);

}  // namespace muster::cli
