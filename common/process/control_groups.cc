#include "common/process/control_groups.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Far above the depth of any system; bounds a damaged file.
constexpr size_t kGroupsMax = 256;

// Appends the root and each group on the way to `path`. The kernel shows a group outside of a
// container's own tree with "..", which leads to no folder here.
void append_path(const std::string& root, absl::string_view path, bool is_v2,
                 std::vector<ControlGroup>& groups) {
  groups.push_back({root, is_v2});
  std::string folder = root;
  for (const absl::string_view part : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (part == ".." || groups.size() >= kGroupsMax) return;
    absl::StrAppend(&folder, "/", part);
    groups.push_back({folder, is_v2});
  }
}

}  // namespace

std::vector<ControlGroup> control_groups(const MachineRoots& roots, std::string_view controller) {
  std::vector<ControlGroup> groups;
  std::ifstream file(fs::path(roots.proc) / "self" / "cgroup");
  // Rows of "number:controllers:path"; version 2 has no controllers.
  for (std::string line; std::getline(file, line) && groups.size() < kGroupsMax;) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    if (parts[1].empty()) {
      append_path(roots.cgroup, parts[2], true, groups);
      // Beside controllers of version 1, systemd mounts version 2 here.
      append_path(roots.cgroup + "/unified", parts[2], true, groups);
      continue;
    }
    const std::vector<absl::string_view> names = absl::StrSplit(parts[1], ',');
    if (std::find(names.begin(), names.end(), av(controller)) == names.end()) continue;
    append_path(absl::StrCat(roots.cgroup, "/", av(controller)), parts[2], false, groups);
    // "cpu,cpuacct": a folder with the names of all, where a container has no link for each.
    if (names.size() > 1)
      append_path(absl::StrCat(roots.cgroup, "/", parts[1]), parts[2], false, groups);
  }
  return groups;
}

std::optional<uint64_t> number_in_file(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  uint64_t value = 0;
  if (file >> word && absl::SimpleAtoi(word, &value)) return value;
  return std::nullopt;
}

}  // namespace muster
