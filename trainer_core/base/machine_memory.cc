#include "trainer_core/base/machine_memory.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/units.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

// The file names of a version of control groups.
struct GroupFiles {
  std::array<std::string_view, 2> limits;  // empty: none
  std::string_view usage;
  std::string_view droppable;  // the row of memory.stat for page cache that can be dropped
};
// Above memory.high the kernel reclaims and delays instead of killing: a rank that needs more does
// not progress. Version 1's soft limit applies only if the machine itself is short of memory.
constexpr GroupFiles kVersion2 = {{"memory.max", "memory.high"}, "memory.current", "inactive_file"};
constexpr GroupFiles kVersion1 = {
    {"memory.limit_in_bytes", ""}, "memory.usage_in_bytes", "total_inactive_file"};

// Returns the number after `name` in a file that has a name and a number in each row.
std::optional<uint64_t> row(const fs::path& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    uint64_t value = 0;
    if (words >> key >> value && key == name) return value;
  }
  return std::nullopt;
}

// A limit of a group, and the file that states it.
struct GroupLimit {
  uint64_t bytes = 0;
  std::string file;
};

// Returns the lowest limit of the group; nullopt if it has none.
std::optional<GroupLimit> limit_of(const ControlGroup& group, const GroupFiles& files) {
  std::optional<GroupLimit> lowest;
  for (const std::string_view name : files.limits) {
    if (name.empty()) continue;
    std::string file = absl::StrCat(group.folder, "/", av(name));
    const auto bytes = number_in_file(file);
    if (bytes && (!lowest || *bytes < lowest->bytes)) lowest = GroupLimit{*bytes, std::move(file)};
  }
  return lowest;
}

std::optional<AvailableMemory> left_in(const ControlGroup& group) {
  const GroupFiles& files = group.is_v2 ? kVersion2 : kVersion1;
  const auto limit = limit_of(group, files);
  const auto usage = number_in_file(absl::StrCat(group.folder, "/", av(files.usage)));
  if (!limit || !usage) return std::nullopt;
  const uint64_t droppable =
      row(fs::path(group.folder) / "memory.stat", files.droppable).value_or(0);
  const uint64_t held = *usage - std::min(*usage, droppable);
  return AvailableMemory{
      limit->bytes - std::min(limit->bytes, held),
      absl::StrFormat("%s (%.0f MiB)", limit->file, static_cast<double>(limit->bytes) / kMiB)};
}

}  // namespace

std::optional<AvailableMemory> available_memory(const MachineRoots& roots) {
  constexpr uint64_t kKiB = 1024;
  std::optional<AvailableMemory> available;
  if (const auto free = row(fs::path(roots.proc) / "meminfo", "MemAvailable:"))
    available = AvailableMemory{*free * kKiB, ""};
  for (const ControlGroup& group : control_groups(roots, "memory")) {
    auto left = left_in(group);
    if (left && (!available || left->bytes < available->bytes)) available = std::move(left);
  }
  return available;
}

std::string limit_note(const AvailableMemory& available) {
  return available.limit.empty() ? "" : absl::StrCat(" (limited by ", available.limit, ")");
}

}  // namespace muster::trainer
