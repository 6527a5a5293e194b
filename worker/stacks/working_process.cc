#include "worker/stacks/working_process.h"

#include <optional>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "worker/stacks/proc_files.h"

namespace muster::worker {
namespace {

// A script that calls a script; a longer chain is a loop of reused pids.
constexpr int kShellsMax = 8;
constexpr size_t kChildrenBytesMax = 4096;

std::optional<pid_t> only_child(const std::string& proc_root, pid_t pid) {
  const auto children = read_proc_file(
      absl::StrCat(proc_root, "/", pid, "/task/", pid, "/children"), kChildrenBytesMax);
  if (!children) return std::nullopt;
  const std::vector<std::string> pids =
      absl::StrSplit(*children, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  pid_t child = 0;
  if (pids.size() != 1 || !absl::SimpleAtoi(pids.front(), &child)) return std::nullopt;
  return child;
}

}  // namespace

pid_t working_process(const std::string& proc_root, pid_t pid) {
  for (int i = 0; i < kShellsMax; ++i) {
    constexpr size_t kOneThread = 2;
    if (read_thread_ids(proc_root, pid, kOneThread).size() != 1 ||
        read_wait_channel(proc_root, pid, pid) != "do_wait")
      return pid;
    const auto child = only_child(proc_root, pid);
    if (!child) return pid;
    pid = *child;
  }
  return pid;
}

}  // namespace muster::worker
