#include "worker/stacks/child_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/errno_status.h"

namespace muster::worker {
namespace {

// The two ends of a pipe, closed when they go.
struct Pipe {
  std::array<int, 2> ends{-1, -1};

  Pipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0) ends = {-1, -1};
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void close_end(size_t end) {
    if (ends.at(end) >= 0) close(ends.at(end));
    ends.at(end) = -1;
  }
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

absl::StatusOr<pid_t> start(const std::vector<std::string>& command, int output, int error) {
  std::vector<std::string> environment;
  for (const char* name : {"PATH", "HOME", "LANG"}) {
    const char* value = std::getenv(name);
    if (value != nullptr) environment.push_back(absl::StrCat(name, "=", value));
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  absl::Cleanup free_files = [&] { posix_spawn_file_actions_destroy(&files); };
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, error, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  absl::Cleanup free_attributes = [&] { posix_spawnattr_destroy(&attributes); };
  sigset_t set;
  sigemptyset(&set);
  posix_spawnattr_setsigmask(&attributes, &set);
  sigfillset(&set);
  posix_spawnattr_setsigdefault(&attributes, &set);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, command.at(0).c_str(), &files, &attributes,
                                 pointers(command).data(), pointers(environment).data());
  if (failed != 0) return errno_status(failed, absl::StrCat("executing ", command.at(0)));
  return pid;
}

// Takes what there is; false at the end. Of what is over the bound one byte is kept, so that it shows.
bool take(int fd, size_t bytes_max, std::string& out) {
  std::array<char, 65536> buffer;
  const ssize_t got = read(fd, buffer.data(), buffer.size());
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  out.append(buffer.data(), std::min(static_cast<size_t>(got), bytes_max + 1 - out.size()));
  return got > 0;
}

absl::Status collect(Pipe& output, Pipe& error, const ChildOutputLimits& limits, Instant deadline,
                     ChildOutput& out) {
  while (output.ends[0] >= 0 || error.ends[0] >= 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - monotonic_now());
    if (left.count() <= 0) return absl::DeadlineExceededError("did not answer in time");
    std::array<pollfd, 2> states{{{output.ends[0], POLLIN, 0}, {error.ends[0], POLLIN, 0}}};
    if (poll(states.data(), states.size(), static_cast<int>(left.count())) <= 0) continue;
    if (states[0].revents != 0 && !take(output.ends[0], limits.output_bytes_max, out.output))
      output.close_end(0);
    if (states[1].revents != 0 && !take(error.ends[0], limits.error_bytes_max, out.error))
      error.close_end(0);
    if (out.output.size() > limits.output_bytes_max)
      return absl::ResourceExhaustedError("printed more than is read");
  }
  return absl::OkStatus();
}

// False: it is there after `until`.
bool wait_for_end(pid_t pid, Instant until, int& status) {
  constexpr auto kLook = std::chrono::milliseconds(2);
  while (true) {
    const pid_t got = waitpid(pid, &status, WNOHANG);
    if (got == pid || (got < 0 && errno != EINTR)) return true;
    if (monotonic_now() >= until) return false;
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace

absl::StatusOr<ChildOutput> run_child(const std::vector<std::string>& command,
                                      const ChildOutputLimits& limits, Instant deadline) {
  Pipe output;
  Pipe error;
  if (output.ends[0] < 0 || error.ends[0] < 0) return errno_status(errno, "making a pipe");
  const auto pid = start(command, output.ends[1], error.ends[1]);
  if (!pid.ok()) return pid.status();
  output.close_end(1);
  error.close_end(1);
  ChildOutput out;
  absl::Status collected = collect(output, error, limits, deadline, out);
  const std::string name = command[0].substr(command[0].rfind('/') + 1);
  int status = 0;
  // It has closed what it prints to, and will end at once; or it is told to.
  if (collected.ok() && !wait_for_end(*pid, deadline, status))
    collected = absl::DeadlineExceededError("has answered and did not end in time");
  if (!collected.ok()) {
    kill(-*pid, SIGKILL);
    if (!wait_for_end(*pid, monotonic_now() + kChildReapedWithin, status))
      return absl::DeadlineExceededError(
          absl::StrCat(name, " hangs: it did not answer in time, and cannot be killed"));
    return absl::Status(collected.code(), absl::StrCat(name, " ", collected.message()));
  }
  out.error.resize(std::min(out.error.size(), limits.error_bytes_max));
  out.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return out;
}

}  // namespace muster::worker
