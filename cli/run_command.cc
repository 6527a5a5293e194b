#include "cli/run_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>

#include "common/errno_status.h"

namespace muster::cli {
namespace {

struct Pipe {
  int read_fd = -1;
  int write_fd = -1;

  ~Pipe() {
    close_end(read_fd);
    close_end(write_fd);
  }
  bool open() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read_fd = ends[0];
    write_fd = ends[1];
    return true;
  }
  static void close_end(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
};

// False at its end, or when it is too long.
bool read_some(int fd, std::string& text) {
  std::array<char, 65536> buffer{};
  const ssize_t got = read(fd, buffer.data(), buffer.size());
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  text.append(buffer.data(), static_cast<size_t>(got));
  return got > 0 && text.size() <= kCommandOutputMax;
}

bool write_some(int fd, const std::string& text, size_t& written) {
  const ssize_t put = write(fd, text.data() + written, text.size() - written);
  if (put < 0) return errno == EINTR || errno == EAGAIN;
  written += static_cast<size_t>(put);
  return written < text.size();
}

absl::StatusOr<pid_t> spawn(const std::vector<std::string>& words, const Pipe& in, const Pipe& out,
                            const Pipe& err) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  const absl::Cleanup release = [&] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  };
  posix_spawn_file_actions_adddup2(&actions, in.read_fd, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write_fd, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write_fd, STDERR_FILENO);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  if (error == ENOENT)
    return absl::NotFoundError(absl::StrCat("there is no program ", words[0], " in PATH"));
  if (error != 0) return errno_status(error, absl::StrCat("starting ", words[0]));
  return pid;
}

}  // namespace

absl::StatusOr<CommandEnd> run_command(const std::vector<std::string>& words, Duration deadline,
                                       const std::string& input) {
  Pipe in;
  Pipe out;
  Pipe err;
  if (!in.open() || !out.open() || !err.open()) return errno_status(errno, "pipe");
  const auto pid = spawn(words, in, out, err);
  if (!pid.ok()) return pid.status();
  Pipe::close_end(in.read_fd);
  Pipe::close_end(out.write_fd);
  Pipe::close_end(err.write_fd);
  if (input.empty()) Pipe::close_end(in.write_fd);
  // A write that waits for all of it to be read would wait for a program that waits for us.
  if (in.write_fd >= 0 && fcntl(in.write_fd, F_SETFL, O_NONBLOCK) != 0)
    return errno_status(errno, "fcntl");
  CommandEnd end;
  size_t written = 0;
  const Instant until = monotonic_now() + deadline;
  bool in_time = true;
  while (in_time && (out.read_fd >= 0 || err.read_fd >= 0)) {
    std::array<pollfd, 3> fds = {pollfd{out.read_fd, POLLIN, 0}, pollfd{err.read_fd, POLLIN, 0},
                                 pollfd{in.write_fd, POLLOUT, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - monotonic_now()).count();
    in_time = left > 0 && poll(fds.data(), fds.size(), static_cast<int>(left)) != 0;
    if (fds[0].revents != 0 && !read_some(out.read_fd, end.output)) Pipe::close_end(out.read_fd);
    if (fds[1].revents != 0 && !read_some(err.read_fd, end.errors)) Pipe::close_end(err.read_fd);
    if (fds[2].revents != 0 && !write_some(in.write_fd, input, written))
      Pipe::close_end(in.write_fd);
  }
  if (!in_time) kill(*pid, SIGKILL);
  int status = 0;
  while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) {
    return absl::DeadlineExceededError(
        absl::StrCat(words[0], " has not ended within ", to_seconds(deadline), " s"));
  }
  end.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

absl::StatusOr<std::string> output_of(const std::vector<std::string>& words, Duration deadline) {
  auto end = run_command(words, deadline);
  if (!end.ok()) return end.status();
  if (end->exit_code == 0) return std::move(end->output);
  absl::StripTrailingAsciiWhitespace(&end->errors);
  return absl::Status(end->exit_code == 128 + SIGTERM ? absl::StatusCode::kAborted
                                                      : absl::StatusCode::kFailedPrecondition,
                      absl::StrCat(words[0], words.size() > 1 ? " " + words[1] : "", " ended with ",
                                   end->exit_code, end->errors.empty() ? "" : ": ", end->errors));
}

}  // namespace muster::cli
