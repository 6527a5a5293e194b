#include "bench/durability/daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace muster::bench {
namespace {

constexpr Duration kPoll = std::chrono::milliseconds(5);
constexpr size_t kLogEndBytes = 2'000;

}  // namespace

Daemon::~Daemon() {
  if (pid_ > 0) (void)reap(SIGKILL, "");
}

std::string Daemon::address() const { return absl::StrCat("127.0.0.1:", grpc_port_); }

std::string Daemon::start() {
  const std::string ports = folder_ + "/ports.json";
  const std::string log = folder_ + "/coordinator.log";
  unlink(ports.c_str());
  const std::vector<std::string> words = {
      program_, "--state-dir", folder_ + "/state", "--listen", address(), "--http",
      absl::StrCat("127.0.0.1:", http_port_), "--port-file", ports, "--die-with-parent",
      "--log-level", "warning",
      // The machine may be busy: silence of workers and ranks is no subject of this measurement.
      "--worker-lease-ms", "120000", "--unreachable-ms", "60000"};
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  const int error =
      posix_spawn(&pid_, program_.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) pid_ = 0;
  return error == 0 ? "" : absl::StrCat("cannot start ", program_, ": ", strerror(error));
}

bool Daemon::wait_until_ready(Duration limit) {
  const std::string ports = folder_ + "/ports.json";
  for (const Instant end = monotonic_now() + limit; monotonic_now() < end;) {
    std::ifstream file(ports);
    const nlohmann::json found = nlohmann::json::parse(file, nullptr, false);
    if (!found.is_discarded() && found.value("pid", 0) == pid_) {
      grpc_port_ = found.at("grpc_port");
      http_port_ = found.at("http_port");
      return true;
    }
    if (waitid(P_PID, static_cast<id_t>(pid_), nullptr, WEXITED | WNOHANG | WNOWAIT) != 0)
      return false;
    std::this_thread::sleep_for(kPoll);
  }
  return false;
}

std::string Daemon::kill_now() { return reap(SIGKILL, absl::StrCat("signal ", SIGKILL)); }

std::string Daemon::stop() { return reap(SIGTERM, "code 0"); }

std::string Daemon::reap(int signal, const std::string& expected) {
  kill(pid_, signal);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  const std::string end = WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                                              : absl::StrCat("code ", WEXITSTATUS(status));
  if (end == expected) return "";
  return absl::StrCat("the coordinator ended with ", end, ": ", end_of_log());
}

std::string Daemon::end_of_log() const {
  std::ifstream file(folder_ + "/coordinator.log");
  std::ostringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  return all.substr(all.size() - std::min(all.size(), kLogEndBytes));
}

}  // namespace muster::bench
