#include "cli/run/embedded_fleet.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/files/errno_status.h"
#include "common/files/free_space.h"
#include "common/time/time.h"

namespace muster::cli {
namespace {

constexpr char kPortFile[] = "coordinator.json";
constexpr char kAnyPort[] = "127.0.0.1:0";
// A daemon that is killed this often will be killed again; a death hours ago does not count.
constexpr size_t kRevivalsMax = 5;
constexpr Duration kRevivalsWindow = std::chrono::hours(1);
// The last log lines of a daemon state why it could not start.
constexpr size_t kLogTailBytes = 2 << 10;
// The database of a coordinator and the first lines of the logs.
constexpr uint64_t kRoomMin = 1 << 20;

// inotify_init1() reports a lack of instances by the errno of a lack of open files.
absl::Status inotify_problem(int error) {
  if (error != EMFILE) return errno_status(error, "inotify");
  const int spare = eventfd(0, EFD_CLOEXEC);
  if (spare < 0) return errno_status(error, "inotify");
  close(spare);
  return absl::ResourceExhaustedError(
      "inotify: this user has as many instances as the sysctl fs.inotify.max_user_instances "
      "allows; raise it: sysctl fs.inotify.max_user_instances=1024");
}

}  // namespace

absl::StatusOr<std::unique_ptr<EmbeddedFleet>> EmbeddedFleet::start(const std::string& folder,
                                                                    CoordinatorOptions options) {
  // Added before the coordinator starts, so that the creation of its file is not missed.
  const int inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (inotify < 0) return inotify_problem(errno);
  std::unique_ptr<EmbeddedFleet> fleet(new EmbeddedFleet(folder, inotify, std::move(options)));
  if (inotify_add_watch(inotify, folder.c_str(), IN_MOVED_TO) < 0) {
    return errno_status(errno, absl::StrCat("watching ", folder));
  }
  if (auto status = fleet->start_coordinator(fleet->any_port()); !status.ok()) return status;
  return fleet;
}

absl::Status EmbeddedFleet::start_coordinator(const std::string& listen) {
  const auto program = sibling_program("muster-coordinator");
  if (!program.ok()) return program.status();
  std::vector<std::string> command = {
      *program,
      "--listen",
      listen,
      "--http",
      absl::StrCat(shown_host(), ":", options_.reuses_http_port ? http_port_ : 0),
      "--state-dir",
      folder_,
      "--port-file",
      absl::StrCat(folder_, "/", kPortFile)};
  command.insert(command.end(), options_.flags.begin(), options_.flags.end());
  auto coordinator = ChildProcess::start(
      {.command = std::move(command), .output_path = folder_ + "/coordinator.log"});
  if (!coordinator.ok()) return coordinator.status();
  coordinator_ = *std::move(coordinator);
  return absl::OkStatus();
}

EmbeddedFleet::~EmbeddedFleet() {
  kill();
  close(inotify_fd_);
}

absl::StatusOr<bool> EmbeddedFleet::check_ready() {
  std::array<char, 4096> events{};
  while (read(inotify_fd_, events.data(), events.size()) > 0) {
  }
  if (!address_.empty()) return true;
  std::ifstream file(absl::StrCat(folder_, "/", kPortFile));
  if (!file) return false;
  const auto ports = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!ports.is_object() || !ports.contains("grpc_port") ||
      !ports["grpc_port"].is_number_integer()) {
    return absl::InternalError(absl::StrCat(folder_, "/", kPortFile, ": no grpc_port"));
  }
  if (ports.contains("http_port") && ports["http_port"].is_number_integer())
    http_port_ = ports["http_port"].get<int>();
  address_ = absl::StrCat(shown_host(), ":", ports["grpc_port"].get<int>());
  return true;
}

std::string EmbeddedFleet::shown_host() const {
  return absl::StrContains(options_.host, ":") ? absl::StrCat("[", options_.host, "]")
                                               : options_.host;
}

std::string EmbeddedFleet::any_port() const { return shown_host() + ":0"; }

absl::Status EmbeddedFleet::start_worker(int32_t slots, int input_fd) {
  slots_ = slots;
  input_fd_ = input_fd;
  if (input_fd >= 0 && !input_mark_)
    input_mark_ = isatty(STDIN_FILENO) == 1 ? InputMark::of_terminal() : InputMark::of(input_fd);
  const auto program = sibling_program("muster-worker");
  if (!program.ok()) return program.status();
  if (memory_ == nullptr) memory_ = RunMemory::create();
  std::vector<std::string> command = {
      *program,  "--coordinator",     address_,     "--name",           "local",
      "--slots", absl::StrCat(slots), "--work-dir", folder_ + "/work",  "--http",
      kAnyPort,  "--rendezvous",      kAnyPort,     "--die-with-parent"};
  // The environment is that of the user whose program it is.
  command.insert(command.end(), {"--pass-env", "*"});
  if (memory_ != nullptr) command.insert(command.end(), {"--local-dir", memory_->path()});
  if (input_fd >= 0) {
    command.insert(command.end(), {"--pass-stdin", input_mark_->text()});
    input_mark_ = input_mark_->after_reader();
  }
  auto worker = ChildProcess::start({.command = std::move(command),
                                     .output_path = folder_ + "/worker.log",
                                     .input_fd = input_fd});
  if (!worker.ok()) return worker.status();
  worker_ = *std::move(worker);
  return absl::OkStatus();
}

void EmbeddedFleet::note_input(uint32_t attempt, std::vector<std::string>& notes) {
  if (attempt < 2 || input_is_noted_ || !input_mark_ || !input_mark_->is_stream()) return;
  if (input_mark_->is_lost(input_fd_)) return;
  input_is_noted_ = true;
  notes.push_back(absl::StrCat("rank 0 of attempt ", attempt,
                               " reads its standard input, a pipe, from where the previous attempt "
                               "stopped; a file (< FILE) is read from its start"));
}

absl::Status EmbeddedFleet::ended(const char* name, const ChildExit& end) const {
  const std::string log = tail_of_file(absl::StrCat(folder_, "/", name, ".log"), kLogTailBytes);
  // On a full disk the log is empty, too.
  const auto free = free_space_bytes(folder_);
  const std::string disk =
      log.empty() && free && *free < kRoomMin
          ? absl::StrCat(": the disk of ", folder_, " is full (", *free, " bytes are free)")
          : "";
  return absl::InternalError(absl::StrCat(
      "muster-", name, " ended with ",
      end.signal != 0 ? absl::StrCat("signal ", end.signal) : absl::StrCat("exit code ", end.code),
      log.empty() ? disk : ":\n", log));
}

absl::Status EmbeddedFleet::health() {
  constexpr auto kNow = std::chrono::milliseconds(0);
  if (const auto end = coordinator_->wait(kNow)) return ended("coordinator", *end);
  if (worker_ != nullptr) {
    if (const auto end = worker_->wait(kNow)) return ended("worker", *end);
  }
  return absl::OkStatus();
}

absl::Status EmbeddedFleet::mend(std::vector<std::string>& notes, uint32_t attempt) {
  note_input(attempt, notes);
  constexpr auto kNow = std::chrono::milliseconds(0);
  const auto revive = [&](const char* name, const std::optional<ChildExit>& end,
                          const auto& start) {
    if (!end) return absl::OkStatus();
    const Instant now = monotonic_now();
    std::erase_if(revivals_, [&](Instant at) { return now - at >= kRevivalsWindow; });
    if (end->signal == 0 || revivals_.size() == kRevivalsMax) return ended(name, *end);
    revivals_.push_back(now);
    notes.push_back(
        absl::StrCat("muster-", name, " was killed by signal ", end->signal, "; restarting it"));
    return start();
  };
  absl::Status status =
      revive("coordinator", coordinator_->wait(kNow), [&] { return start_coordinator(address_); });
  if (status.ok() && worker_ != nullptr)
    status = revive("worker", worker_->wait(kNow), [&] { return start_worker(slots_, input_fd_); });
  return status;
}

void EmbeddedFleet::stop(std::chrono::milliseconds grace) {
  const Instant deadline = monotonic_now() + grace;
  if (worker_ != nullptr) worker_->signal(SIGTERM);
  coordinator_->signal(SIGINT);  // it may ignore SIGTERM
  for (ChildProcess* child : {worker_.get(), coordinator_.get()}) {
    if (child == nullptr) continue;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - monotonic_now());
    child->wait(std::max(left, std::chrono::milliseconds(0)));
  }
  kill();
}

void EmbeddedFleet::kill() {
  worker_.reset();  // first: a worker without its coordinator would try to report
  coordinator_.reset();
}

}  // namespace muster::cli
