#include "trainer_core/startup/machine_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

// The file names of a version of control groups.
struct GroupFiles {
  std::string_view limit;
  std::string_view usage;
  std::string_view droppable;  // the row of memory.stat for page cache that can be dropped
};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};
constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file"};

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

// Returns the number in a file that holds one; nullopt for "max".
std::optional<uint64_t> number(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  uint64_t value = 0;
  if (file >> word && absl::SimpleAtoi(word, &value)) return value;
  return std::nullopt;
}

std::optional<uint64_t> smaller(std::optional<uint64_t> a, std::optional<uint64_t> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::optional<uint64_t> left_in(const fs::path& group, const GroupFiles& files) {
  const auto limit = number(group / files.limit);
  const auto usage = number(group / files.usage);
  if (!limit || !usage) return std::nullopt;
  const uint64_t droppable = row(group / "memory.stat", files.droppable).value_or(0);
  const uint64_t held = *usage - std::min(*usage, droppable);
  return *limit - std::min(*limit, held);
}

// Returns the minimum of what the limits of a group and of its ancestors leave. In a container the
// path may exist only on the host. A group that does not exist here sets no limit, and the group of
// the container is the root.
std::optional<uint64_t> left_in_groups(const fs::path& root, const std::string& path,
                                       const GroupFiles& files) {
  std::optional<uint64_t> left = left_in(root, files);
  fs::path group = root;
  for (const fs::path& part : fs::path(path).relative_path()) {
    group /= part;
    left = smaller(left, left_in(group, files));
  }
  return left;
}

}  // namespace

std::optional<uint64_t> available_memory(const MachineRoots& roots) {
  constexpr uint64_t kKiB = 1024;
  std::optional<uint64_t> available = row(fs::path(roots.proc) / "meminfo", "MemAvailable:");
  if (available) *available *= kKiB;
  // Rows of "number:controllers:path"; version 2 has no controllers.
  std::ifstream groups(fs::path(roots.proc) / "self" / "cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers =
        absl::StrCat(",", line.substr(first + 1, second - first - 1), ",");
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      available = smaller(available, left_in_groups(roots.cgroup, path, kVersion2));
    } else if (controllers.find(",memory,") != std::string::npos) {
      available =
          smaller(available, left_in_groups(fs::path(roots.cgroup) / "memory", path, kVersion1));
    }
  }
  return available;
}

}  // namespace muster::trainer
