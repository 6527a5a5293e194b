#include "cli/run/run_memory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/text/canonical_number.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

// Locks this user's folder, without following links. Returns -1 if it does not exist or is locked.
int lock_own_folder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat info {};
  struct stat there {};
  if (fstat(fd, &info) == 0 && info.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
      lstat(path.c_str(), &there) == 0 && there.st_ino == info.st_ino)
    return fd;
  close(fd);
  return -1;
}

// Returns whether create() makes folders of this name: "<prefix><pid>-", then six characters.
bool is_run_memory(std::string_view name, std::string_view prefix) {
  constexpr size_t kUnique = 6;
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  const size_t dash = name.find('-');
  return dash != std::string_view::npos && name.size() - dash - 1 == kUnique &&
         canonical_number<pid_t>(name.substr(0, dash)).value_or(0) > 0;
}

void remove_dead(const std::string& root, const std::string& prefix) {
  std::vector<std::string> folders;
  std::error_code error;
  fs::directory_iterator entry(root, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (is_run_memory(entry->path().filename().string(), prefix))
      folders.push_back(entry->path().string());
  }
  for (const std::string& folder : folders) {
    const int lock = lock_own_folder(folder);
    if (lock < 0) continue;
    fs::remove_all(folder, error);
    close(lock);
  }
}

}  // namespace

std::unique_ptr<RunMemory> RunMemory::create(const std::string& root) {
  // A call that lists the root between our mkdir and our lock takes the folder for a dead one and
  // removes it. The next try has another name.
  constexpr int kTriesMax = 100;
  const std::string prefix = absl::StrCat("muster-run-", geteuid(), "-");
  remove_dead(root, prefix);
  for (int i = 0; i < kTriesMax; ++i) {
    std::string path = absl::StrCat(root, "/", prefix, getpid(), "-XXXXXX");
    if (mkdtemp(path.data()) == nullptr) return nullptr;
    if (const int lock = lock_own_folder(path); lock >= 0)
      return std::unique_ptr<RunMemory>(new RunMemory(path, lock));
  }
  return nullptr;
}

RunMemory::~RunMemory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  close(lock_);
}

}  // namespace muster::cli
