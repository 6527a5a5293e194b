#include "cli/run_folder.h"

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

#include "common/errno_status.h"
#include "daemon/process.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kPrivateFolder = 0700;

// The numbered folders of earlier calls, in order.
std::vector<int> numbers_in(const fs::path& parent) {
  std::vector<int> numbers;
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    int number = 0;
    if (absl::SimpleAtoi(it->path().filename().string(), &number) && number > 0)
      numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::string folder_name(int number) { return absl::StrFormat("%04d", number); }

absl::StatusOr<int> lock(const std::string& path, const std::string& output_directory) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return errno_status(errno, absl::StrCat("opening ", path));
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  const int error = errno;
  close(fd);
  if (error != EWOULDBLOCK) return errno_status(error, absl::StrCat("locking ", path));
  return absl::AlreadyExistsError(absl::StrCat("another muster run is at work in ",
                                               output_directory,
                                               "; wait for it, or choose another run_name"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::create(const std::string& output_directory) {
  const std::string parent = output_directory + "/muster";
  // The config and the environment in the coordinator's state are nobody else's business.
  if (auto status = daemon::make_writable_directory(parent, kPrivateFolder); !status.ok()) {
    return absl::Status(absl::StatusCode::kFailedPrecondition, status.message());
  }
  const auto lock_fd = lock(parent + "/lock", output_directory);
  if (!lock_fd.ok()) return lock_fd.status();
  std::vector<int> numbers = numbers_in(parent);
  const int number = numbers.empty() ? 1 : numbers.back() + 1;
  std::error_code error;
  while (numbers.size() >= static_cast<size_t>(kRunsKeptMax)) {
    fs::remove_all(parent + "/" + folder_name(numbers.front()), error);
    numbers.erase(numbers.begin());
  }
  const std::string path = parent + "/" + folder_name(number);
  std::unique_ptr<RunFolder> folder(new RunFolder(output_directory, path, *lock_fd));
  if (mkdir(path.c_str(), kPrivateFolder) != 0) {
    return errno_status(errno, absl::StrCat("creating folder ", path));
  }
  return folder;
}

RunFolder::~RunFolder() { close(lock_fd_); }

void RunFolder::discard() {
  std::error_code error;
  fs::remove_all(path_, error);
  const fs::path parent = fs::path(path_).parent_path();
  if (numbers_in(parent).empty()) fs::remove(parent / "lock", error);
  // remove() leaves what is not empty.
  fs::remove(parent, error);
  fs::remove(output_directory_, error);
}

}  // namespace muster::cli
