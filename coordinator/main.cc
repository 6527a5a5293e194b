// muster-coordinator: parses flags and runs the server until a signal stops it.
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <iostream>
#include <map>
#include <mutex>

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
#include "coordinator/shell/profiling/profiler.h"
#include "coordinator/shell/server.h"
#include "coordinator/shell/start_exit.h"
#include "daemon/command_line.h"
#include "daemon/help.h"
#include "daemon/logging.h"
#include "daemon/metric_words.h"
#include "daemon/process.h"

namespace muster::coordinator {
namespace {

int64_t to_ms(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

// Far above what one core can process.
constexpr int64_t kHeartbeatBudgetMax = 1'000'000;

struct Flags {
  ServerOptions server;
  std::string port_file;
  bool die_with_parent = false;
  bool ignore_sigterm = false;
  int64_t worker_lease_ms = to_ms(CoreOptions{}.worker_lease);
  int64_t heartbeat_interval_ms = to_ms(CoreOptions{}.heartbeat_interval);
  int64_t unreachable_ms = to_ms(CoreOptions{}.unreachable_after);
  int64_t overload_lag_ms = to_ms(kOverloadLag);
  std::string log_level = "info";
  std::string log_format = "text";
};

void add_seconds(CLI::App& app, const char* name, Duration& time, const char* help, double least) {
  constexpr double kSecondsMax = 7 * 86'400;
  app.add_option_function<double>(
         name,
         [&time](const double& seconds) {
           time = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
         },
         help)
      ->type_name("SECONDS")
      ->default_str(absl::StrCat(to_seconds(time)))
      ->check(daemon::number(least, kSecondsMax));
}

// Declares the flags for the time that a job may make no progress, by the phase of its ranks.
void declare_hang_budgets(CLI::App& app, HangBudgets& budgets) {
  const auto add = [&](const char* name, Duration& budget, const char* help) {
    add_seconds(app, name, budget, help, 0.1);
  };
  add("--hang-floor-seconds", budgets.floor,
      "A training job becomes suspect when nothing progresses for --hang-step-factor times its "
      "longest recent step, and never before this");
  add("--hang-first-steps-seconds", budgets.first_steps,
      "The same until it has completed three steps, from which their duration is learned");
  const auto add_factor = [&](const char* name, double& factor, const char* help) {
    constexpr double kFactorMax = 1'000;
    app.add_option(name, factor, help)
        ->type_name("TIMES")
        ->capture_default_str()
        ->check(daemon::number(1, kFactorMax));
  };
  add_factor("--hang-step-factor", budgets.steps,
             "The multiple of the longest recent step after which a job without any progress is "
             "suspect");
  add_factor("--hang-completed-step-factor", budgets.steps_completed,
             "The same for a job that shows progress and completes no step");
  add("--hang-probe-seconds", budgets.probe,
      "A job that makes no progress for this long is examined in any phase: it is ended if a rank "
      "is "
      "stopped or dead, or if its ranks wait for each other");
  add("--hang-init-seconds", budgets.init, "… while ranks start");
  add("--hang-rendezvous-seconds", budgets.rendezvous, "… during the rendezvous");
  add("--hang-load-seconds", budgets.load, "… while they read data and parameters");
  add("--hang-compile-seconds", budgets.compile, "… while they allocate, compile and tune");
  add("--hang-evaluation-seconds", budgets.evaluation,
      "… while they evaluate for the first two times; later three times the longest evaluation so "
      "far");
  add("--hang-checkpoint-seconds", budgets.checkpoint,
      "… while a checkpoint is saved or restored for the first two times; later three times the "
      "longest so far");
  add("--hang-shutdown-seconds", budgets.shutdown, "… while they leave");
  add("--hang-doubt-seconds", budgets.unsure,
      "How long a job that stands still without a clear cause is sampled before it is ended");
  add("--hang-doubt-program-seconds", budgets.unsure_program,
      "A foreign program is ended when it has stood still for this long without a clear cause, and "
      "for twice its longest pause");
  add("--hang-doubt-idle-seconds", budgets.unsure_idle,
      "The same if its processes use no CPU time, read and write nothing, and wait for no time");
}

// Declares the flag for the comparison of a job's steps with its plan and its earlier steps.
void declare_step_window(CLI::App& app, CoreOptions& options) {
  add_seconds(
      app, "--slower-than-plan-seconds", options.slower_than_plan_window,
      "An incident opens when a job's median step over this time is 15% slower than planned "
      "or than before",
      1);
  app.add_option("--slow-nodes", options.slow_nodes,
                 "What a job does about a node that is slow for that time: replace it at the next "
                 "checkpoint if a node is free and that saves time, or only report it")
      ->type_name("replace|report")
      ->default_str("replace")
      ->transform(CLI::CheckedTransformer(
                      std::map<std::string, SlowNodePolicy>{{"replace", SlowNodePolicy::kReplace},
                                                            {"report", SlowNodePolicy::kReport}})
                      .description(""));
}

// Declares the flags that determine when a job that lost nodes continues with fewer nodes, and when
// it grows again.
void declare_sizes(CLI::App& app, CoreOptions& options) {
  const auto add = [&](const char* name, Duration& time, const char* help) {
    add_seconds(app, name, time, help, 0);
  };
  add("--whole-wait-seconds", options.full_size_wait,
      "How long a job with min_nodes waits for a lost node before it continues with fewer");
  add("--keep-nodes-seconds", options.reservation_time,
      "How long a job that lost a node and cannot continue without it holds its other nodes "
      "against queued jobs");
  add("--grow-stable-seconds", options.grow_stable,
      "A job that runs on fewer nodes grows when more have been free for this long, twice as long "
      "each time");
  add("--grow-after-seconds", options.grow_after, "… and not sooner than this after its start");
  add("--cancel-grace-seconds", options.cancel_grace,
      "Time that ranks of a cancelled or preempted job get to save a checkpoint");
}

// Declares the flags of the API's certificate, tokens and exposure.
void declare_trust(CLI::App& app, ServerOptions& options) {
  const auto add = [&](const char* flag, std::string& path, const char* type, const char* help) {
    app.add_option(flag, path, help)->type_name(type)->group("Trust");
  };
  add("--tls-cert", options.trust.tls_cert, "FILE",
      "Serve the API and the page by TLS with this certificate; it is read again when it is "
      "renewed");
  add("--tls-key", options.trust.tls_key, "FILE", "The key of --tls-cert");
  add("--tls-client-ca", options.trust.tls_client_ca, "FILE",
      "Require a client certificate signed by one of these");
  add("--token-dir", options.trust.token_dir, "FOLDER",
      "Require a token: files worker, viewer, submitter and admin, one token per line, read again "
      "when they change");
  app.add_option(
         "--oidc", options.trust.oidc,
         "Accept tokens of an OpenID Connect issuer, too: a JSON file with issuer, audience, "
         "roles by group and more (docs/trust.md); may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->group("Trust");
  add("--audit-log", options.audit_log, "FILE",
      "Write a JSON line for each change that a caller requests, and for each refused call "
      "(default: audit.jsonl in --state-dir); it is renamed at 64 MiB, and 8 files are kept");
  app.add_flag("--trusted-network", options.trusted_network,
               "Allow --http on an address that other machines can reach: /metrics has no "
               "transport security, and without TLS the page answers only on this machine")
      ->group("Trust");
  app.add_flag("--insecure", options.insecure,
               "Allow addresses that other machines can reach, without transport security")
      ->group("Trust");
}

void declare(CLI::App& app, Flags& flags) {
  constexpr int64_t kIntervalMsMax = 3'600'000;
  daemon::use_our_help(app);
  app.add_option("--listen", flags.server.listen,
                 "Address for gRPC, host:port; port 0 picks a free one")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--http", flags.server.http,
                 "Address for the page with its API, /metrics, /healthz and /readyz")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--state-dir", flags.server.state_dir, "Folder for the state and the ranks' logs")
      ->type_name("FOLDER")
      ->required();
  app.add_option("--port-file", flags.port_file,
                 "Once ready, write the ports and the pid to this file as JSON")
      ->type_name("FILE");
  app.add_flag("--die-with-parent", flags.die_with_parent,
               "Stop when the process that started this one has ended");
  app.add_flag("--ignore-sigterm", flags.ignore_sigterm,
               "Stop only on SIGINT and SIGHUP: Slurm sends SIGTERM to every process of a job, and "
               "ranks that save then need their coordinator");
  declare_trust(app, flags.server);
  daemon::add_count(app, "--worker-lease-ms", flags.worker_lease_ms,
                    "Silence after which a worker and its ranks are lost", 100, kIntervalMsMax)
      ->capture_default_str();
  daemon::add_count(app, "--heartbeat-interval-ms", flags.heartbeat_interval_ms,
                    "How often each worker reports", 10, kIntervalMsMax)
      ->capture_default_str();
  daemon::add_count(app, "--heartbeat-budget", flags.server.core.heartbeat_budget,
                    "Heartbeats per second of all workers together; in a larger fleet each worker "
                    "reports less often",
                    1, kHeartbeatBudgetMax)
      ->capture_default_str();
  declare_hang_budgets(app, flags.server.core.hang);
  declare_step_window(app, flags.server.core);
  declare_sizes(app, flags.server.core);
  add_seconds(app, "--idle-check-every-seconds", flags.server.core.idle_check_every,
              "Check idle nodes deeply when their last deep check is this old and no job waits; 0: "
              "only on request (muster node check --deep)",
              0);
  daemon::add_count(app, "--unreachable-ms", flags.unreachable_ms,
                    "Silence of a worker with running ranks after which it is reported unreachable",
                    100, kIntervalMsMax)
      ->capture_default_str();
  daemon::add_count(app, "--overload-lag-ms", flags.overload_lag_ms,
                    "Refuse to list jobs, workers, incidents and logs while events are handled "
                    "this late",
                    10, kIntervalMsMax)
      ->capture_default_str();
  daemon::add_count(
      app, "--worker-series", flags.server.worker_series,
      "Workers, spread evenly, with their own metrics, besides silent ones; totals cover all", 0,
      daemon::kSeriesSampleMax)
      ->capture_default_str();
  daemon::add_count(app, "--job-series", flags.server.job_series,
                    "Jobs with their own metrics; totals and incidents cover all", 0,
                    daemon::kJobsShownMax)
      ->capture_default_str();
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warning, error or off")
      ->type_name("LEVEL")
      ->capture_default_str();
  app.add_option("--log-format", flags.log_format,
                 "text, or json: one object per line, with job, attempt and rank")
      ->type_name("FORMAT")
      ->capture_default_str();
  app.footer(
      "Examples:\n"
      "  muster-coordinator --state-dir /var/lib/muster\n"
      "  muster-coordinator --state-dir /tmp/m --listen 127.0.0.1:0 --http 127.0.0.1:0 --port-file "
      "/tmp/m/ports\n"
      "  # For others: workers and commands then have --tls-ca and --token-file\n"
      "  muster-coordinator --state-dir /var/lib/muster --listen 0.0.0.0:7070 --tls-cert tls.crt "
      "--tls-key tls.key --token-dir /etc/muster/tokens\n\n"
      "Exit codes of a start that fails: 2 a wrong flag, 10 the state directory is in use, 11 a "
      "port is in use,\n12 no space for the state, 13 the state is damaged or newer, 14 the "
      "certificate or the tokens; 1 any later failure.");
}

int fail(const absl::Status& status, ExitCode code) {
  std::cerr << "muster-coordinator: " << status.message() << "\n";
  return to_int(code);
}

absl::Status write_port_file(const std::string& path, const Server& server) {
  const nlohmann::json ports = {
      {"grpc_port", server.grpc_port()}, {"http_port", server.http_port()}, {"pid", getpid()}};
  return write_file_atomically(path, ports.dump() + "\n", {.mode = daemon::kPortFileMode});
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
  daemon::raise_open_files_limit();
  if (auto status = check_start_needs("the coordinator", kCoordinatorNeeds); !status.ok())
    return fail(status, ExitCode::kFailure);
  std::promise<absl::Status> end;
  std::once_flag ended;
  const auto finish = [&](const absl::Status& status) {
    std::call_once(ended, [&] { end.set_value(status); });
  };
  const auto signals =
      daemon::SignalListener::start(daemon::leave_signals(), [&](int signal_number) {
        if (signal_number != SIGTERM || !flags.ignore_sigterm) finish(absl::OkStatus());
      });

  flags.server.core.version = kVersion;
  flags.server.core.worker_lease = std::chrono::milliseconds(flags.worker_lease_ms);
  flags.server.core.heartbeat_interval = std::chrono::milliseconds(flags.heartbeat_interval_ms);
  flags.server.core.unreachable_after = std::chrono::milliseconds(flags.unreachable_ms);
  flags.server.overload.lag = std::chrono::milliseconds(flags.overload_lag_ms);
  flags.server.on_fatal = finish;
  auto server = Server::start(flags.server);
  if (!server.ok()) {
    std::cerr << "muster-coordinator: " << server.status().message() << "\n";
    return exit_code_of_start(server.status());
  }
  if (!flags.port_file.empty()) {
    if (absl::Status status = write_port_file(flags.port_file, **server); !status.ok()) {
      return fail(status, ExitCode::kBadInput);
    }
  }
  spdlog::info("version {} serves gRPC on port {} and HTTP on port {}, state in {}", kVersion,
               (*server)->grpc_port(), (*server)->http_port(), flags.server.state_dir);
  const absl::Status status = end.get_future().get();
  if (!flags.port_file.empty()) unlink(flags.port_file.c_str());
  server->reset();
  if (!status.ok()) return fail(status, ExitCode::kFailure);
  spdlog::info("stopped");
  return to_int(ExitCode::kOk);
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
  muster::coordinator::declare(app, flags);
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
