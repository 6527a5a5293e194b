// muster-coordinator: parses flags and runs the server until a signal stops it.
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <stop_token>
#include <utility>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>
#include <absl/synchronization/mutex.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "common/files/file_write.h"
#include "common/process/exit_code.h"
#include "common/process/standard_descriptors.h"
#include "common/process/start_limits.h"
#include "common/version.h"
#include "coordinator/flags.h"
#include "coordinator/shell/candidacy.h"
#include "coordinator/shell/etcd/etcd_storage.h"
#include "coordinator/shell/policy_file.h"
#include "coordinator/shell/profiling/profiler.h"
#include "coordinator/shell/server.h"
#include "coordinator/shell/start_exit.h"
#include "coordinator/shell/storage/state_files.h"
#include "coordinator/shell/storage/state_lock.h"
#include "daemon/command_line.h"
#include "daemon/logging.h"
#include "daemon/process.h"

namespace muster::coordinator {
namespace {

int fail(const absl::Status& status, ExitCode code) {
  std::cerr << "muster-coordinator: " << status.message() << "\n";
  return to_int(code);
}

// `grpc_port`: 0 for a standby, which does not listen.
absl::Status write_port_file(const std::string& path, int grpc_port, int http_port) {
  if (path.empty()) return absl::OkStatus();
  nlohmann::json ports = {{"http_port", http_port}, {"pid", getpid()}};
  if (grpc_port != 0) ports["grpc_port"] = grpc_port;
  return write_file_atomically(path, ports.dump() + "\n", {.mode = daemon::kPortFileMode});
}

void remove_port_file(const std::string& path) {
  if (!path.empty()) unlink(path.c_str());
}

// Ends the process at once, on any thread: the kernel closes all connections, and no thread that
// waits for a disk or for etcd delays that.
[[noreturn]] void leave_deposed(const std::string& port_file, const absl::Status& reason) {
  spdlog::error("{}; the process ends", std::string(reason.message()));
  spdlog::default_logger()->flush();
  remove_port_file(port_file);
  _exit(static_cast<int>(StartExit::kDeposed));
}

int fail_start(const absl::Status& status) {
  std::cerr << "muster-coordinator: " << status.message() << "\n";
  return exit_code_of_start(status);
}

int move_state(const Flags& flags, Candidacy& candidacy) {
  // A coordinator that works on the state would change it after the copy.
  const auto lock = StateLock::take(flags.server.state_dir);
  if (!lock.ok()) return fail_start(exits_as(StartExit::kLock, lock.status()));
  const auto move = StateMove::begin(flags.server.state_dir);
  if (!move.ok()) return fail_start(exits_as(StartExit::kState, move.status()));
  absl::Status status = import_into_etcd(move->file(), candidacy.client(), candidacy.lease());
  if (absl::IsAlreadyExists(status) && move->continues()) {
    const auto is_done = is_in_etcd(move->file(), candidacy.client(), candidacy.lease());
    if (is_done.ok() && *is_done) status = absl::OkStatus();
  }
  // After an election that was lost, etcd may have the state.
  if (!status.ok() && !move->continues() && !is_deposed(status)) status.Update(move->revert());
  if (!status.ok()) return fail_start(exits_as(StartExit::kStore, status));
  std::cout << "The state of " << flags.server.state_dir
            << " is in etcd: start the coordinators with --etcd.\n";
  return to_int(ExitCode::kOk);
}

int leave(const Flags& flags) {
  const std::string& state_dir = flags.server.state_dir;
  const auto lock = StateLock::take(state_dir);
  if (!lock.ok()) return fail_start(exits_as(StartExit::kLock, lock.status()));
  const auto epoch = leave_etcd(state_dir);
  if (!epoch.ok()) return fail_start(exits_as(StartExit::kState, epoch.status()));
  std::cout << "The state of " << state_dir << ", as of epoch " << epoch->value()
            << ", has left etcd: start this coordinator without --etcd. The last leader's is that "
               "of the highest epoch.\n";
  return to_int(ExitCode::kOk);
}

// Starts the server. A start that reads a large state from a slow etcd takes long, so that `leave`
// ends the process at once: what is stored is complete after each transaction.
absl::StatusOr<std::unique_ptr<Server>> start_server(const Flags& flags,
                                                     const std::stop_token& leave) {
  const std::stop_callback end_at_once(leave, [&flags] {
    spdlog::info("stopped during the start");
    spdlog::default_logger()->flush();
    remove_port_file(flags.port_file);
    _exit(to_int(ExitCode::kOk));
  });
  return Server::start(flags.server);
}

// Serves until `end` is set.
int serve(const Flags& flags, std::future<absl::Status> end, const std::stop_token& leave) {
  auto server = start_server(flags, leave);
  if (!server.ok()) return fail_start(server.status());
  if (absl::Status status =
          write_port_file(flags.port_file, (*server)->grpc_port(), (*server)->http_port());
      !status.ok()) {
    return fail(status, ExitCode::kBadInput);
  }
  spdlog::info("version {} serves gRPC on port {} and HTTP on port {}, state in {}", kVersion,
               (*server)->grpc_port(), (*server)->http_port(), flags.server.state_dir);
  const absl::Status status = end.get();
  if (is_deposed(status)) leave_deposed(flags.port_file, status);
  remove_port_file(flags.port_file);
  server->reset();
  if (!status.ok()) return fail(status, ExitCode::kFailure);
  spdlog::info("stopped");
  return to_int(ExitCode::kOk);
}

// Waits as a standby, and serves once it leads.
int serve_in_turn(Flags& flags, std::future<absl::Status> end, const std::stop_token& leave) {
  flags.candidacy.on_lost = [&flags](const absl::Status& reason) {
    leave_deposed(flags.port_file, reason);
  };
  const auto candidacy = Candidacy::create(flags.candidacy, flags.server);
  if (!candidacy.ok()) return fail(candidacy.status(), ExitCode::kBadInput);
  if (const std::string& path = flags.server.queue_policy; !path.empty()) {
    if (const auto policy = PolicyFile::read(path); !policy.ok())
      spdlog::warn(
          "{}; as the leader this coordinator would use the policy that was last in force, or end "
          "if there was none",
          std::string(policy.status().message()));
  }
  // Before the election: a standby that refuses to lead would be of no use at a failover.
  if (!flags.move_state_to_etcd) {
    if (absl::Status status = check_state_files(flags.server.state_dir, /*has_etcd=*/true);
        !status.ok())
      return fail_start(exits_as(exit_of_state(status), status));
  }
  absl::Status written;
  const absl::Status won = (*candidacy)->win(flags.server, leave, [&](int http_port) {
    written = write_port_file(flags.port_file, 0, http_port);
  });
  if (!written.ok()) return fail(written, ExitCode::kBadInput);
  if (absl::IsCancelled(won)) {
    remove_port_file(flags.port_file);
    spdlog::info("stopped as a standby");
    return to_int(ExitCode::kOk);
  }
  if (!won.ok()) return fail_start(won);
  if (flags.move_state_to_etcd) return move_state(flags, **candidacy);
  flags.server.etcd = &(*candidacy)->client();
  flags.server.lease = &(*candidacy)->lease();
  flags.server.core.coordinator = (*candidacy)->advertised();
  return serve(flags, std::move(end), leave);
}

int run(Flags& flags) {
  if (flags.worker_lease_ms < 2 * flags.heartbeat_interval_ms) {
    return fail(absl::InvalidArgumentError(
                    absl::StrCat("--worker-lease-ms is ", flags.worker_lease_ms,
                                 ": it must be at least twice --heartbeat-interval-ms (",
                                 flags.heartbeat_interval_ms, ")")),
                ExitCode::kBadInput);
  }
  if (absl::Status status =
          daemon::set_up_logging("muster-coordinator", flags.log_level, flags.log_format);
      !status.ok()) {
    return fail(status, ExitCode::kBadInput);
  }
  if (flags.die_with_parent) {
    if (absl::Status status = daemon::die_with_parent(); !status.ok())
      return fail(status, ExitCode::kFailure);
  }
  if (flags.ignore_sigterm) signal(SIGUSR1, SIG_IGN);  // Slurm's other signal
  if (flags.leave_etcd) return leave(flags);
  daemon::raise_open_files_limit();
  if (auto status = check_start_needs("the coordinator", kCoordinatorNeeds); !status.ok())
    return fail(status, ExitCode::kFailure);
  std::stop_source leave;  // a signal has come
  std::promise<absl::Status> end;
  std::once_flag ended;
  const auto finish = [&](const absl::Status& status) {
    std::call_once(ended, [&] { end.set_value(status); });
  };
  const auto signals =
      daemon::SignalListener::start(daemon::leave_signals(), [&](int signal_number) {
        if (signal_number == SIGTERM && flags.ignore_sigterm) return;
        finish(absl::OkStatus());
        leave.request_stop();
      });

  flags.server.core.version = kVersion;
  flags.server.core.worker_lease = std::chrono::milliseconds(flags.worker_lease_ms);
  flags.server.core.heartbeat_interval = std::chrono::milliseconds(flags.heartbeat_interval_ms);
  flags.server.core.unreachable_after = std::chrono::milliseconds(flags.unreachable_ms);
  flags.server.overload.lag = std::chrono::milliseconds(flags.overload_lag_ms);
  flags.server.on_fatal = finish;
  if (flags.candidacy.etcd.endpoints.empty())
    return serve(flags, end.get_future(), leave.get_token());
  return serve_in_turn(flags, end.get_future(), leave.get_token());
}

}  // namespace
}  // namespace muster::coordinator

int main(int argc, char** argv) {
  muster::hold_standard_descriptors();
  muster::name_limits_at_abort("muster-coordinator");
  muster::coordinator::start_heap_samples();
  // Silences gRPC's own log, which shows its internals; this program logs the relevant events. Set
  // before any thread exists.
  setenv("GRPC_VERBOSITY", "NONE", 0);
  // gRPC 1.51 reads into blocks of 8 KiB, one for each connection. Without this experiment, which
  // is its default, the blocks have the size of the data (GRPC_ARG_TCP_READ_CHUNK_SIZE).
  setenv("GRPC_EXPERIMENTS", "-tcp_read_chunks", 0);
#ifdef NDEBUG
  // Distributions build Abseil with its search for lock cycles, which costs gRPC a quarter of the
  // time of registrations. Debug and sanitizer builds keep it.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
  // The state holds the jobs' environments, including tokens: its files are private to their owner.
  umask(S_IRWXG | S_IRWXO);
  signal(SIGXFSZ, SIG_IGN);  // exceeding a file size limit becomes an error of write()
  muster::coordinator::Flags flags;
  CLI::App app("The Muster coordinator: queues jobs, places their ranks, restarts what fails.",
               "muster-coordinator");
  muster::coordinator::declare_flags(app, flags);
  try {
    app.parse(argc, argv);
    // A grace that the user sets is a strict limit.
    flags.server.core.cancel_waits_for_save = app.count("--cancel-grace-seconds") == 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return muster::coordinator::fail(muster::daemon::explain(app, error),
                                     muster::ExitCode::kBadInput);
  }
  return muster::coordinator::run(flags);
}
