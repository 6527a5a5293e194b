#include "cli/run/terminal_input.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include <absl/memory/memory.h>

#include "common/files/errno_status.h"

namespace muster::cli {
namespace {

// How soon a program that comes back to the foreground reads again.
constexpr int kForegroundPollMs = 200;

// A terminal of another session, or one that is gone, has no foreground: a read stops no process.
bool is_in_foreground(int terminal) {
  const pid_t group = tcgetpgrp(terminal);
  return group < 0 || group == getpgrp();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TerminalInput>> TerminalInput::start(int terminal) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno_status(errno, "pipe");
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  const int stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop < 0) {
    const int error = errno;
    close(ends[0]);
    close(ends[1]);
    return errno_status(error, "eventfd");
  }
  auto input = absl::WrapUnique(new TerminalInput(terminal, ends[0], ends[1], stop));
  input->thread_ = std::thread([raw = input.get()] { raw->forward(); });
  return input;
}

TerminalInput::~TerminalInput() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(stop_fd_, &one, sizeof(one));
  thread_.join();
  if (write_fd_ >= 0) close(write_fd_);
  close(read_fd_);
  close(stop_fd_);
}

// Returns false when the object ends.
bool TerminalInput::wait_for(int fd, short events) const {
  while (true) {
    pollfd fds[] = {{.fd = fd, .events = events, .revents = 0},
                    {.fd = stop_fd_, .events = POLLIN, .revents = 0}};
    if (poll(fds, 2, fd < 0 ? kForegroundPollMs : -1) < 0 && errno != EINTR) return false;
    if (fds[1].revents != 0) return false;
    if (fd < 0 || fds[0].revents != 0) return true;
  }
}

bool TerminalInput::pass(const char* data, size_t bytes) const {
  while (bytes > 0) {
    if (!wait_for(write_fd_, POLLOUT)) return false;
    const ssize_t written = write(write_fd_, data, bytes);
    if (written < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (written <= 0) return false;
    data += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

void TerminalInput::forward() {
  // A read in the background fails instead of stopping this program.
  sigset_t background;
  sigemptyset(&background);
  sigaddset(&background, SIGTTIN);
  pthread_sigmask(SIG_BLOCK, &background, nullptr);
  std::array<char, 4096> line{};  // a terminal gives at most so much at once
  while (true) {
    const bool reads = is_in_foreground(terminal_);
    if (!wait_for(reads ? terminal_ : -1, POLLIN)) return;
    if (!reads || !is_in_foreground(terminal_)) continue;
    const ssize_t got = read(terminal_, line.data(), line.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EIO && tcgetpgrp(terminal_) > 0) continue;
    if (got <= 0 || !pass(line.data(), static_cast<size_t>(got))) break;
  }
  close(write_fd_);
  write_fd_ = -1;
}

}  // namespace muster::cli
