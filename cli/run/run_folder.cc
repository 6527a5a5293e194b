#include "cli/run/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/files/errno_status.h"
#include "common/files/missing_folders.h"
#include "daemon/process.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kPrivateFolder = 0700;
constexpr char kLockFile[] = "/lock";
// Each retry means that another call gave up within these microseconds.
constexpr int kLockTriesMax = 100;

std::string folder_name(int number) { return absl::StrFormat("%04d", number); }

// Returns the numbers of earlier calls' folders, sorted. Other names, such as "1" and "00001", are
// the user's.
std::vector<int> numbers_in(const fs::path& parent) {
  std::vector<int> numbers;
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    int number = 0;
    const std::string name = it->path().filename().string();
    if (absl::SimpleAtoi(name, &number) && number > 0 && name == folder_name(number))
      numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

bool is_still_at(const std::string& path, int fd) {
  struct stat mine {};
  struct stat there {};
  return fstat(fd, &mine) == 0 && stat(path.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

// NotFound when another call gave up at the same moment and removed the folder or the lock file.
absl::StatusOr<int> try_lock(const std::string& parent, const std::string& output_directory) {
  // Private, because the coordinator's state contains the config and the environment.
  if (auto status = daemon::make_writable_directory(parent, kPrivateFolder); !status.ok())
    return status;
  const std::string path = parent + kLockFile;
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return errno_status(errno, absl::StrCat("opening ", path));
  const int error = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  // A lock on an unlinked file excludes no process.
  if (error == 0 && is_still_at(path, fd)) return fd;
  close(fd);
  if (error == 0) return absl::NotFoundError(absl::StrCat(path, " was removed"));
  if (error != EWOULDBLOCK) return errno_status(error, absl::StrCat("locking ", path));
  return absl::AlreadyExistsError(absl::StrCat("another muster run is using ", output_directory,
                                               "; wait for it, or choose another run_name"));
}

absl::StatusOr<int> lock(const std::string& parent, const std::string& output_directory) {
  auto fd = try_lock(parent, output_directory);
  for (int tries = 1; absl::IsNotFound(fd.status()) && tries < kLockTriesMax; ++tries)
    fd = try_lock(parent, output_directory);
  if (fd.ok() || absl::IsAlreadyExists(fd.status())) return fd;
  return absl::FailedPreconditionError(fd.status().message());
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::create(const std::string& output_directory) {
  const std::string parent = output_directory + "/muster";
  std::vector<fs::path> made = missing_folders(parent);
  const auto lock_fd = lock(parent, output_directory);
  if (!lock_fd.ok()) {
    remove_empty(made);
    return lock_fd.status();
  }
  std::vector<int> numbers = numbers_in(parent);
  const int number = numbers.empty() ? 1 : numbers.back() + 1;
  std::error_code error;
  while (numbers.size() >= static_cast<size_t>(kRunsKeptMax)) {
    fs::remove_all(parent + "/" + folder_name(numbers.front()), error);
    numbers.erase(numbers.begin());
  }
  const std::string path = parent + "/" + folder_name(number);
  std::unique_ptr<RunFolder> folder(new RunFolder(path, std::move(made), *lock_fd));
  if (mkdir(path.c_str(), kPrivateFolder) != 0) {
    return errno_status(errno, absl::StrCat("creating folder ", path));
  }
  return folder;
}

RunFolder::~RunFolder() { close(lock_fd_); }

void RunFolder::discard() {
  std::error_code error;
  fs::remove_all(path_, error);
  if (made_.empty()) return;
  const std::string parent = made_.front().string();
  // The lock is still held: a process that has the file open finds out that the path has changed.
  if (numbers_in(parent).empty()) fs::remove(parent + kLockFile, error);
  remove_empty(made_);
}

}  // namespace muster::cli
