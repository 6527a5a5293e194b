#include "worker/shell/ranks/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/files/ranks_file.h"
#include "worker/shell/programs/exec_problem.h"
#include "worker/shell/ranks/node_fault.h"

namespace muster::worker {
namespace {

// The steps of a child, by ExecFailure::step; the last one is the execution itself.
constexpr std::array<const char*, 3> kSteps = {"setting up the process", "becoming the user",
                                               "entering the working directory"};
constexpr int kUserStep = 1;
constexpr int kDirectoryStep = 2;
constexpr int kExecStep = 3;

// Everything that the child needs, prepared before the fork: between fork and exec only
// async-signal-safe calls are allowed, because other threads may have held locks.
struct Prepared {
  std::vector<char*> arguments;
  std::vector<char*> environment;
  const char* directory;
  int log_fd;
  int input_fd;
  int failure_fd;
  pid_t parent;
  mode_t umask;
  rlimit open_files;
  bool goes_first;  // the kernel kills it first when memory runs out
  std::optional<cpu_set_t> cpus;
  const UserIds* user;  // null: this process's
};

// In a control group shared with its worker, the kernel should kill a rank first when memory runs
// out: without its worker a node has no ranks at all. Raising the score needs no privilege; a
// higher configured score stays.
constexpr const char* kOomScorePath = "/proc/self/oom_score_adj";
constexpr int kOomScore = 500;
constexpr std::string_view kOomScoreText = "500";

bool has_lower_oom_score() {
  std::ifstream file(kOomScorePath);
  int score = 0;
  return file >> score && score < kOomScore;
}

void raise_oom_score() {
  const int fd = open(kOomScorePath, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t written = write(fd, kOomScoreText.data(), kOomScoreText.size());
  close(fd);
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& string : strings) result.push_back(const_cast<char*>(string.c_str()));
  result.push_back(nullptr);
  return result;
}

std::optional<cpu_set_t> allowed_of(const std::vector<int32_t>& wanted) {
  cpu_set_t allowed, both;
  CPU_ZERO(&both);
  if (wanted.empty() || sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return std::nullopt;
  for (const int32_t cpu : wanted) {
    const auto index = static_cast<size_t>(cpu);
    if (cpu >= 0 && index < CPU_SETSIZE && CPU_ISSET(index, &allowed)) CPU_SET(index, &both);
  }
  if (CPU_COUNT(&both) == 0) return std::nullopt;
  return both;
}

void close_from(int first) {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, static_cast<unsigned>(first), ~0U, 0) == 0) return;
#endif
  const long limit = sysconf(_SC_OPEN_MAX);
  for (int fd = first; fd < limit; ++fd) close(fd);
}

void reset_signals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signo = 1; signo < NSIG; ++signo) sigaction(signo, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void fail(const Prepared& prepared, int step) {
  const ExecFailure failure{errno, step};
  // If this fails, too, the parent sees exit status 127.
  [[maybe_unused]] const ssize_t written = write(prepared.failure_fd, &failure, sizeof(failure));
  _exit(127);
}

// Closes the worker's files. The change of the user and the execution may take time, in a file
// system of the user's, and other processes of the user must find none of them.
void keep_files_of(Prepared& prepared) {
  constexpr int kFailureFd = STDERR_FILENO + 1;
  if (dup2(prepared.input_fd, STDIN_FILENO) < 0 || dup2(prepared.log_fd, STDOUT_FILENO) < 0 ||
      dup2(prepared.log_fd, STDERR_FILENO) < 0)
    fail(prepared, 0);
  if (prepared.failure_fd != kFailureFd) {
    if (dup3(prepared.failure_fd, kFailureFd, O_CLOEXEC) < 0) fail(prepared, 0);
    prepared.failure_fd = kFailureFd;
  }
  close_from(kFailureFd + 1);
}

[[noreturn]] void become_program(Prepared& prepared) {
  reset_signals();
  // In a session of its own, another user's process can neither write to the worker's terminal by
  // TIOCSTI, nor join another process group than its own.
  if ((prepared.user == nullptr ? setpgid(0, 0) : setsid()) < 0) fail(prepared, 0);
  keep_files_of(prepared);
  if (prepared.goes_first) raise_oom_score();
  // A failure only makes the rank slower.
  if (prepared.cpus) sched_setaffinity(0, sizeof(*prepared.cpus), &*prepared.cpus);
  umask(prepared.umask);
  if (setrlimit(RLIMIT_NOFILE, &prepared.open_files) != 0) fail(prepared, 0);
  if (prepared.user != nullptr && !become_user(*prepared.user)) fail(prepared, kUserStep);
  // After the change of the user, which clears it.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail(prepared, 0);
  if (getppid() != prepared.parent) _exit(127);  // the worker died between fork and prctl
  if (chdir(prepared.directory) != 0) fail(prepared, kDirectoryStep);
  execve(prepared.arguments[0], prepared.arguments.data(), prepared.environment.data());
  fail(prepared, kExecStep);
}

}  // namespace

absl::StatusOr<int> open_log(const SpawnRequest& request) {
  const int fd = open_ranks_file(request.log_path, O_WRONLY | O_CREAT | O_APPEND);
  if (fd < 0) {
    const bool is_link = errno == ELOOP;
    const absl::Status status = errno_status(errno, absl::StrCat("opening ", request.log_path));
    if (!request.user) return node_fault(status);
    return is_link ? status : node_fault_unless_users(status);
  }
  // Programs expect that writes to their output block.
  if (ftruncate(fd, 0) == 0 && fcntl(fd, F_SETFL, O_APPEND) == 0) return fd;
  const int error = errno;
  close(fd);
  absl::Status status = errno_status(error, absl::StrCat("emptying ", request.log_path));
  return request.user ? node_fault_unless_users(std::move(status)) : node_fault(std::move(status));
}

absl::StatusOr<StartingProcess> begin_spawn(const SpawnRequest& request, int log_fd) {
  const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null_fd < 0) return node_fault(errno_status(errno, "opening /dev/null"));
  absl::Cleanup close_null = [&] { close(null_fd); };
  std::array<int, 2> failure_pipe{};
  if (pipe2(failure_pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    return node_fault(errno_status(errno, "making a pipe"));
  absl::Cleanup close_read_end = [&] { close(failure_pipe[0]); };

  rlimit open_files{};
  getrlimit(RLIMIT_NOFILE, &open_files);
  if (request.open_files != 0) open_files.rlim_cur = request.open_files;
  Prepared prepared{pointers(request.arguments),
                    pointers(request.environment),
                    request.directory.c_str(),
                    log_fd,
                    request.input_fd >= 0 ? request.input_fd : null_fd,
                    failure_pipe[1],
                    getpid(),
                    request.umask,
                    open_files,
                    has_lower_oom_score(),
                    allowed_of(request.cpus),
                    request.user ? &*request.user : nullptr};
  const pid_t pid = fork();
  if (pid == 0) become_program(prepared);
  const int fork_error = errno;
  close(failure_pipe[1]);
  if (pid < 0) return node_fault(errno_status(fork_error, "starting a process"));
  std::move(close_read_end).Cancel();
  return StartingProcess{pid, failure_pipe[0]};
}

StartState read_start(int failure_fd, ExecFailure& failure) {
  ssize_t got = 0;
  do {
    got = read(failure_fd, &failure, sizeof(failure));
  } while (got < 0 && errno == EINTR);
  if (got == 0) return StartState::kStarted;
  if (got == static_cast<ssize_t>(sizeof(failure))) return StartState::kFailed;
  return StartState::kStarting;
}

absl::Status describe_failure(const ExecFailure& failure, const SpawnRequest& request) {
  const FileRights rights(request.user);
  if (!rights.status().ok()) return node_fault(rights.status());
  if (failure.step == kExecStep) return exec_problem(failure.error, request.arguments[0]);
  const std::string subject = failure.step == kDirectoryStep ? request.directory
                              : failure.step == kUserStep && request.user
                                  ? absl::StrCat(request.user->uid)
                                  : request.arguments[0];
  const char* const step = kSteps.at(static_cast<size_t>(failure.step));
  const absl::Status status = errno_status(failure.error, absl::StrCat(step, " ", subject));
  return failure.step == kDirectoryStep ? status : node_fault(status);
}

absl::StatusOr<pid_t> spawn(const SpawnRequest& request) {
  const auto log_fd = open_log(request);
  if (!log_fd.ok()) return log_fd.status();
  const auto process = begin_spawn(request, *log_fd);
  close(*log_fd);
  if (!process.ok()) return process.status();
  ExecFailure failure;
  StartState state = StartState::kStarting;
  while ((state = read_start(process->failure_fd, failure)) == StartState::kStarting) {
    pollfd one{process->failure_fd, POLLIN, 0};
    poll(&one, 1, /*timeout=*/-1);
  }
  close(process->failure_fd);
  if (state == StartState::kStarted) return process->pid;
  waitpid(process->pid, nullptr, 0);
  return describe_failure(failure, request);
}

}  // namespace muster::worker
