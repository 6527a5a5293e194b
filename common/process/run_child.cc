#include "common/process/run_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <thread>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"

namespace muster {
namespace {

// A pipe, whose ends are closed on destruction.
struct Pipe {
  int read_fd = -1;
  int write_fd = -1;

  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return;
    read_fd = ends[0];
    write_fd = ends[1];
  }
  ~Pipe() {
    close_end(read_fd);
    close_end(write_fd);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  static void close_end(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
};

struct Pipes {
  Pipe out, err;

  bool are_open() const { return out.read_fd >= 0 && err.read_fd >= 0; }
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> bare_environment() {
  std::vector<std::string> environment;
  for (const char* name : {"PATH", "HOME", "LANG"}) {
    const char* value = std::getenv(name);
    if (value != nullptr) environment.push_back(absl::StrCat(name, "=", value));
  }
  return environment;
}

absl::Status not_started(int failed, const std::string& program) {
  if (failed != ENOENT) return errno_status(failed, absl::StrCat("starting ", program));
  return absl::NotFoundError(absl::StrCat(
      "there is no program ", program, program.find('/') == std::string::npos ? " in PATH" : ""));
}

// The descriptors, signals and user of a child before it calls exec.
struct GroupChild {
  pid_t parent;
  int null, out, err;
  sigset_t no_signals;
  const UserIds* user;  // null: ours
};

// Runs in the child: calls only async-signal-safe functions. Returns the error of exec.
int become_group(const GroupChild& child, char* const* words, char* const* environment) {
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) (void)sigaction(signal, &by_default, nullptr);
  if (dup2(child.null, STDIN_FILENO) < 0 || dup2(child.out, STDOUT_FILENO) < 0 ||
      dup2(child.err, STDERR_FILENO) < 0)
    return errno;
  (void)close_range(STDERR_FILENO + 1, ~0U, 0);
  if (setpgid(0, 0) != 0 || (child.user != nullptr && !become_user(*child.user))) return errno;
  // posix_spawn has no attribute for it, and after our end no process would kill the group. A
  // change of the user clears it.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
  if (getppid() != child.parent) return ECANCELED;
  sigprocmask(SIG_SETMASK, &child.no_signals, nullptr);
  execvpe(words[0], words, environment);
  return errno;
}

// vfork: a copy of a process with pinned memory takes long, and may fail.
[[gnu::noinline]] pid_t fork_group(const GroupChild& child, char* const* words,
                                   char* const* environment, volatile int& failed) {
  const pid_t pid = vfork();
  if (pid != 0) return pid;
  failed = become_group(child, words, environment);
  _exit(127);
}

// A child of another user must not share our memory. Its errors are on standard error.
pid_t fork_user(const GroupChild& child, char* const* words, char* const* environment) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const int error = become_group(child, words, environment);
  // Not strerror(), which may wait for a lock that another thread had at the fork.
  const char* const name = strerrorname_np(error);
  const std::string_view text(name == nullptr ? "it cannot be executed" : name);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  _exit(127);
}

absl::StatusOr<pid_t> start_group(const std::vector<std::string>& words,
                                  const ChildOptions& options, const Pipes& pipes) {
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0) return errno_status(errno, "opening /dev/null");
  const absl::Cleanup close_null = [null] { close(null); };
  GroupChild child{.parent = getpid(),
                   .null = null,
                   .out = pipes.out.write_fd,
                   .err = pipes.err.write_fd,
                   .no_signals = {},
                   .user = options.user ? &*options.user : nullptr};
  sigemptyset(&child.no_signals);
  const std::vector<std::string> environment =
      options.apart ? bare_environment() : options.environment;
  const std::vector<char*> other = pointers(environment);
  const std::vector<char*> command = pointers(words);
  // A handler of ours must not run in the child, which shares our memory.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  volatile int failed = 0;
  char* const* const variables = environment.empty() ? environ : other.data();
  const pid_t pid = options.user ? fork_user(child, command.data(), variables)
                                 : fork_group(child, command.data(), variables, failed);
  const int cannot_fork = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return errno_status(cannot_fork, absl::StrCat("starting ", words[0]));
  if (failed == 0) return pid;
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
  return not_started(failed, words[0]);
}

absl::StatusOr<pid_t> start(const std::vector<std::string>& words, const ChildOptions& options,
                            const Pipes& pipes) {
  if (options.own_group || options.user) return start_group(words, options, pipes);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  const absl::Cleanup release = [&] {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  };
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, pipes.out.write_fd, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, pipes.err.write_fd, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  sigset_t set;
  sigemptyset(&set);
  posix_spawnattr_setsigmask(&attributes, &set);
  sigfillset(&set);
  posix_spawnattr_setsigdefault(&attributes, &set);
  posix_spawnattr_setpgroup(&attributes, 0);
  const int group = options.apart ? POSIX_SPAWN_SETPGROUP : 0;
  posix_spawnattr_setflags(
      &attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | group));
  const std::vector<std::string> other = options.apart ? bare_environment() : options.environment;
  const std::vector<char*> other_pointers = pointers(other);
  pid_t pid = -1;
  const int failed =
      posix_spawnp(&pid, words.at(0).c_str(), &files, &attributes, pointers(words).data(),
                   other.empty() ? environ : other_pointers.data());
  if (failed != 0) return not_started(failed, words[0]);
  return pid;
}

// Reads available output into `text`; returns false at end-of-file. Stores one byte beyond the
// bound, so that the caller can detect the excess.
bool take(int fd, size_t bytes_max, std::string& text) {
  std::array<char, 65536> buffer{};
  const ssize_t got = read(fd, buffer.data(), buffer.size());
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  text.append(buffer.data(), std::min(static_cast<size_t>(got), bytes_max + 1 - text.size()));
  return got > 0;
}

// Returns the time until `instant`; at most a day, so that it fits into poll().
std::chrono::milliseconds left_until(Instant instant) {
  constexpr Duration kDay = std::chrono::hours(24);
  const Instant now = monotonic_now();
  const Duration left = instant > now + kDay ? kDay : instant - now;
  return std::chrono::ceil<std::chrono::milliseconds>(left);
}

absl::Status collect(Pipes& pipes, const ChildOptions& options, ChildEnd& end) {
  while (pipes.out.read_fd >= 0 || pipes.err.read_fd >= 0) {
    auto left = left_until(options.deadline);
    if (end.output.empty() && end.errors.empty())
      left = std::min(left, left_until(options.first_output_by));
    if (left.count() <= 0) return absl::DeadlineExceededError("did not answer in time");
    if (options.watch) {
      if (!options.watch()) return absl::CancelledError("was stopped");
      left = std::min(left, std::chrono::ceil<std::chrono::milliseconds>(kChildWatchInterval));
    }
    std::array<pollfd, 2> states{{{pipes.out.read_fd, POLLIN, 0}, {pipes.err.read_fd, POLLIN, 0}}};
    if (poll(states.data(), states.size(), static_cast<int>(left.count())) <= 0) continue;
    if (states[0].revents != 0 && !take(pipes.out.read_fd, options.output_bytes_max, end.output))
      Pipe::close_end(pipes.out.read_fd);
    const size_t errors_before = end.errors.size();
    if (states[1].revents != 0 && !take(pipes.err.read_fd, options.errors_bytes_max, end.errors))
      Pipe::close_end(pipes.err.read_fd);
    if (options.on_errors && end.errors.size() > errors_before)
      options.on_errors(std::string_view(end.errors).substr(errors_before));
    if (end.output.size() > options.output_bytes_max)
      return absl::ResourceExhaustedError("printed more than is read");
  }
  return absl::OkStatus();
}

// Waits for the child's end; returns false if it still runs after `until`. If other code has reaped
// the child, `status` is -1.
bool wait_for_end(pid_t pid, Instant until, int& status) {
  constexpr auto kPollInterval = std::chrono::milliseconds(2);
  while (true) {
    const pid_t got = waitpid(pid, &status, WNOHANG);
    if (got < 0 && errno == ECHILD) status = -1;
    if (got == pid || (got < 0 && errno != EINTR)) return true;
    if (monotonic_now() >= until) return false;
    std::this_thread::sleep_for(kPollInterval);
  }
}

// Waits until the group has no processes.
void wait_for_group(pid_t group, Instant until) {
  constexpr auto kPollInterval = std::chrono::milliseconds(2);
  while (kill(-group, 0) == 0 && monotonic_now() < until)
    std::this_thread::sleep_for(kPollInterval);
}

}  // namespace

absl::StatusOr<ChildEnd> run_child(const std::vector<std::string>& words,
                                   const ChildOptions& options) {
  Pipes pipes;
  if (!pipes.are_open()) return errno_status(errno, "making a pipe");
  const auto pid = start(words, options, pipes);
  if (!pid.ok()) return pid.status();
  Pipe::close_end(pipes.out.write_fd);
  Pipe::close_end(pipes.err.write_fd);
  ChildEnd end;
  absl::Status collected = collect(pipes, options, end);
  const std::string name = words[0].substr(words[0].rfind('/') + 1);
  int status = 0;
  // The child has closed its output and will end shortly, or it was killed.
  if (collected.ok() && !wait_for_end(*pid, options.deadline, status))
    collected = absl::DeadlineExceededError("has answered and did not end in time");
  if (!collected.ok()) {
    const bool has_group = options.apart || options.own_group || options.user;
    kill(has_group ? -*pid : *pid, SIGKILL);
    if (!wait_for_end(*pid, monotonic_now() + kChildReapedWithin, status))
      return absl::DeadlineExceededError(
          absl::StrCat(name, " hangs: it did not answer in time, and cannot be killed"));
    if (options.own_group) wait_for_group(*pid, monotonic_now() + kGroupEndsWithin);
    return absl::Status(collected.code(), absl::StrCat(name, " ", collected.message()));
  }
  if (status == -1) return absl::InternalError(absl::StrCat("how ", name, " ended is not known"));
  end.errors.resize(std::min(end.errors.size(), options.errors_bytes_max));
  end.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

}  // namespace muster
