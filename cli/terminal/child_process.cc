#include "cli/terminal/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "daemon/process.h"

namespace muster::cli {
namespace {

// The exit code of shells for a program that cannot be executed.
constexpr int kExecFailed = 127;

// Runs in the child between fork and exec: async-signal-safe calls only. Reports errno through
// `report_fd`.
[[noreturn]] void become(char* const* argv, const char* output, int input_fd, pid_t parent,
                         int report_fd) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExecFailed);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  const int in = input_fd >= 0 ? input_fd : open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int out = open(output, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (in >= 0 && out >= 0 && dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
      dup2(out, STDERR_FILENO) >= 0) {
    if (out > STDERR_FILENO) close(out);
    execv(argv[0], argv);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(report_fd, &error, sizeof(error));
  _exit(kExecFailed);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::start(
    const ChildProcessOptions& options) {
  std::vector<char*> argv;
  for (const std::string& word : options.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const std::string output = options.output_path.empty() ? "/dev/null" : options.output_path;
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return errno_status(errno, "pipe");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(argv.data(), output.c_str(), options.input_fd, parent, report[1]);
  const int fork_error = errno;
  close(report[1]);
  int error = 0;
  ssize_t got = 0;
  if (pid > 0) {
    do {
      got = read(report[0], &error, sizeof(error));
    } while (got < 0 && errno == EINTR);
  }
  close(report[0]);
  if (pid < 0) return errno_status(fork_error, absl::StrCat("starting ", options.command[0]));
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  std::unique_ptr<ChildProcess> child(new ChildProcess(pid, pidfd));
  if (got > 0) return errno_status(error, absl::StrCat("starting ", options.command[0]));
  if (pidfd < 0) return errno_status(errno, "pidfd_open (it needs Linux 5.3)");
  return child;
}

ChildProcess::~ChildProcess() {
  if (!exit_) {
    signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (pidfd_ >= 0) close(pidfd_);
}

void ChildProcess::signal(int signo) const {
  if (!exit_) kill(pid_, signo);
}

std::optional<ChildExit> ChildProcess::wait(std::chrono::milliseconds timeout) {
  if (exit_) return exit_;
  pollfd ended{.fd = pidfd_, .events = POLLIN, .revents = 0};
  if (poll(&ended, 1, static_cast<int>(timeout.count())) <= 0) return std::nullopt;
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) return std::nullopt;
  exit_ = ChildExit{.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                    .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
  return exit_;
}

absl::StatusOr<std::string> sibling_program(const std::string& name) {
  std::filesystem::path folder;
  if (const char* given = std::getenv("MUSTER_BIN_DIR"); given != nullptr && given[0] != '\0') {
    folder = given;
  } else {
    const auto own = daemon::own_executable_path();
    if (!own.ok()) return own.status();
    folder = std::filesystem::path(*own).parent_path();
  }
  const std::string path = (folder / name).string();
  if (access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(
      absl::StrCat("no program ", path, "; set $MUSTER_BIN_DIR to use another folder"));
}

std::string tail_of_file(const std::string& path, size_t bytes_max) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const auto size = static_cast<size_t>(file.tellg());
  const size_t wanted = std::min(size, bytes_max);
  file.seekg(static_cast<std::streamoff>(size - wanted));
  std::string text(wanted, '\0');
  file.read(text.data(), static_cast<std::streamsize>(wanted));
  text.resize(static_cast<size_t>(file.gcount()));
  absl::StripTrailingAsciiWhitespace(&text);
  return text;
}

}  // namespace muster::cli
