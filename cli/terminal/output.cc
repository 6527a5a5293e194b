#include "cli/terminal/output.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>

#include <absl/strings/str_cat.h>

namespace muster::cli {
namespace {

// Long for a reader that reads, and short within the 5 s after which Ctrl-C must have ended the
// run.
constexpr auto kHurryPatience = std::chrono::milliseconds(500);
// A terminal may be writable and still have too little room for the next write.
constexpr auto kPause = std::chrono::milliseconds(10);

int milliseconds(std::chrono::milliseconds duration) { return static_cast<int>(duration.count()); }

// Returns -1 for descriptors that cannot be opened again (a socket, another user's terminal), and
// for files, which never block.
int open_again(int fd) {
  struct stat what {};
  if (fstat(fd, &what) != 0) return -1;
  if (!S_ISFIFO(what.st_mode) && isatty(fd) == 0) return -1;
  return open(absl::StrCat("/proc/self/fd/", fd).c_str(),
              O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

Output::Output(int fd)
    : fd_(fd), own_fd_(open_again(fd)), hurry_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Output::~Output() {
  if (own_fd_ >= 0) close(own_fd_);
  if (hurry_fd_ >= 0) close(hurry_fd_);
}

// `refusals`: consecutive writes that transferred nothing although poll() reported room.
bool Output::wait_for_reader(int refusals) const {
  const int fd = own_fd_ >= 0 ? own_fd_ : fd_;
  if (refusals > 0) poll(nullptr, 0, milliseconds(kPause));
  if (is_hurried_ && refusals > kHurryPatience / kPause) return false;
  while (true) {
    const bool is_hurried = is_hurried_;
    pollfd fds[] = {{.fd = fd, .events = POLLOUT, .revents = 0},
                    {.fd = is_hurried ? -1 : hurry_fd_, .events = POLLIN, .revents = 0}};
    const int ready = poll(fds, 2, is_hurried ? milliseconds(kHurryPatience) : -1);
    if (ready < 0 && errno != EINTR) return false;
    if (ready > 0 && fds[0].revents != 0) return true;
    if (ready == 0) return false;
  }
}

bool Output::write(std::string_view text) {
  int refusals = 0;
  while (!text.empty()) {
    if (is_gone_ || !wait_for_reader(refusals)) return is_gone_ = true, false;
    // A pipe or socket that is writable takes this much without blocking.
    const ssize_t written =
        ::write(own_fd_ >= 0 ? own_fd_ : fd_, text.data(), std::min(text.size(), size_t{PIPE_BUF}));
    refusals = written < 0 && errno == EAGAIN ? refusals + 1 : 0;
    if (refusals > 0 || (written < 0 && errno == EINTR)) continue;
    if (written <= 0) {
      if (written < 0) error_ = errno;
      return is_gone_ = true, false;
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

void Output::hurry() {
  is_hurried_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(hurry_fd_, &one, sizeof(one));
}

}  // namespace muster::cli
