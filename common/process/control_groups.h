// The control groups of this process, in which containers and batch systems set limits of CPU time,
// memory and processes. Both versions of the kernel's interface. Thread-safe: only reads files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

// The roots of the kernel's files. Tests inject others.
struct MachineRoots {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
};

// A folder that may hold a limit of this process.
struct ControlGroup {
  std::string folder;
  bool is_v2 = false;
};

// Returns the groups of this process and their ancestors, for a controller: "cpu", "memory",
// "pids". In a container the path of /proc/self/cgroup may exist only on the host: the container's
// own group is then the root. A returned folder that does not exist limits nothing.
std::vector<ControlGroup> control_groups(const MachineRoots& roots, std::string_view controller);

// Returns the number that is the first word of a kernel's file; nullopt if it is no number ("max",
// "-1"), and without such a file.
std::optional<uint64_t> number_in_file(const std::string& path);

}  // namespace muster
