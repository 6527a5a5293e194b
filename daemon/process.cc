#include "daemon/process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <thread>

#include <absl/strings/str_cat.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <climits>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"

namespace muster::daemon {
namespace {

class AsioSignalListener : public SignalListener {
 public:
  AsioSignalListener(const std::vector<int>& signals, std::function<void(int)> on_signal)
      : signals_(context_), on_signal_(std::move(on_signal)) {
    for (const int signo : signals) {
      // only an invalid number fails, and the caller passes constants
      boost::system::error_code ignored;
      signals_.add(signo, ignored);
    }
    wait();
    thread_ = std::thread([this] { context_.run(); });
  }

  ~AsioSignalListener() override {
    context_.stop();
    thread_.join();
  }

 private:
  void wait() {
    signals_.async_wait([this](const boost::system::error_code& error, int signo) {
      if (error) return;
      on_signal_(signo);
      wait();
    });
  }

  boost::asio::io_context context_{1};
  boost::asio::signal_set signals_;
  std::function<void(int)> on_signal_;
  std::thread thread_;
};

}  // namespace

absl::Status die_with_parent() {
  const pid_t parent = getppid();
  if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) return errno_status(errno, "--die-with-parent");
  // If the parent ends before prctl(), no signal arrives, but the parent has changed. A parent that
  // ended before the first getppid() cannot be detected; a program for which this matters, such as
  // `muster run`, sets the signal itself between fork and exec.
  if (getppid() != parent) {
    return absl::FailedPreconditionError("--die-with-parent: the parent process is already gone");
  }
  return absl::OkStatus();
}

rlim_t raise_open_files_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // if refused, the limit stays
  return before;
}

std::vector<int> leave_signals() {
  std::vector<int> signals = {SIGTERM, SIGINT};
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
    signals.push_back(SIGHUP);
  return signals;
}

absl::StatusOr<std::string> own_executable_path() {
  std::array<char, PATH_MAX> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length < 0) return errno_status(errno, "/proc/self/exe");
  return std::string(path.data(), static_cast<size_t>(length));
}

absl::StatusOr<uint64_t> draw_random_id() {
  uint64_t id = 0;
  if (getrandom(&id, sizeof(id), 0) != static_cast<ssize_t>(sizeof(id))) {
    return errno_status(errno, "getrandom");
  }
  return id;
}

absl::Status make_writable_directory(const std::string& path, mode_t mode) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) return errno_status(error.value(), absl::StrCat("creating folder ", path));
  if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST)
    return errno_status(errno, absl::StrCat("creating folder ", path));
  const std::string probe = absl::StrCat(path, "/.muster-probe.", getpid());
  absl::Status status = write_file_atomically(probe, "probe");
  unlink(probe.c_str());
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("folder ", path, " cannot be written: ", status.message()));
  }
  return absl::OkStatus();
}

std::unique_ptr<SignalListener> SignalListener::start(const std::vector<int>& signals,
                                                      std::function<void(int signo)> on_signal) {
  return std::make_unique<AsioSignalListener>(signals, std::move(on_signal));
}

}  // namespace muster::daemon
