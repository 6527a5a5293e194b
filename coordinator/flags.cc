#include "coordinator/flags.h"

#include <map>

#include <absl/strings/str_cat.h>

#include "daemon/command_line.h"
#include "daemon/help.h"
#include "daemon/metric_words.h"

namespace muster::coordinator {
namespace {

// Far above what one core can process.
constexpr int64_t kHeartbeatBudgetMax = 1'000'000;

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
      "against queued jobs, and a job that has not started keeps its place while workers are away");
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

// Declares the flags of a coordinator that is one of several.
void declare_etcd(CLI::App& app, Flags& flags) {
  EtcdOptions& etcd = flags.candidacy.etcd;
  const auto add = [&](const char* flag, std::string& value, const char* type, const char* help) {
    return app.add_option(flag, value, help)->type_name(type)->group("Several coordinators");
  };
  CLI::Option* const endpoints =
      add("--etcd", etcd.endpoints, "URL,…",
          "Keep the state in etcd, at these members (https://a:2379,b:2379,c:2379), together with "
          "other coordinators: one leads, the others are its standbys");
  add("--etcd-prefix", etcd.prefix, "PREFIX", "The prefix of this fleet's keys")
      ->capture_default_str()
      ->needs(endpoints);
  add("--etcd-ca", etcd.ca, "FILE",
      "Certificates of the authority of etcd's members (default: the system's)")
      ->needs(endpoints);
  add("--etcd-cert", etcd.cert, "FILE", "A certificate for etcd")->needs(endpoints);
  add("--etcd-key", etcd.key, "FILE", "The key of --etcd-cert")->needs(endpoints);
  add("--advertise", flags.candidacy.advertise, "HOST:PORT",
      "The address of --listen as workers and clients reach it (default: that of --listen, or this "
      "host's name)")
      ->needs(endpoints);
  CLI::Option* const move =
      app.add_flag("--move-state-to-etcd", flags.move_state_to_etcd,
                   "Copy the state of --state-dir, whose coordinator was stopped, to an empty "
                   "prefix of etcd, and end")
          ->needs(endpoints)
          ->group("Several coordinators");
  app.add_flag(
         "--leave-etcd", flags.leave_etcd,
         "Make the copy of etcd's state in --state-dir, where the last leader has run and all "
         "coordinators were stopped, the state of a single one, and end")
      ->excludes(move)
      ->group("Several coordinators");
}

}  // namespace

void declare_flags(CLI::App& app, Flags& flags) {
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
                 "Once ready, write the ports and the pid to this file as JSON; a standby has no "
                 "grpc_port")
      ->type_name("FILE");
  app.add_flag("--die-with-parent", flags.die_with_parent,
               "Stop when the process that started this one has ended");
  app.add_flag("--ignore-sigterm", flags.ignore_sigterm,
               "Stop only on SIGINT and SIGHUP: Slurm sends SIGTERM to every process of a job, and "
               "ranks that save then need their coordinator");
  declare_trust(app, flags.server);
  declare_etcd(app, flags);
  app.add_option(
         "--queue-policy", flags.server.queue_policy,
         "Quotas, priority ceilings and shares of users and teams, as JSON; read again when "
         "it changes (docs/queue.md)")
      ->type_name("FILE");
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
      "--tls-key tls.key --token-dir /etc/muster/tokens\n"
      "  # On each of three hosts; workers and commands then have --coordinator "
      "a:7070,b:7070,c:7070\n"
      "  muster-coordinator --state-dir /var/lib/muster --listen 0.0.0.0:7070 --advertise a:7070 "
      "--etcd "
      "https://a:2379,b:2379,c:2379 --etcd-ca etcd.crt …\n\n"
      "Exit codes of a start that fails: 2 a wrong flag, 10 the state directory is in use, 11 a "
      "port is in use,\n12 no space for the state, 13 the state is damaged or newer, 14 the "
      "certificate or the tokens, 15 etcd refuses the requests;\n16 another coordinator leads, "
      "also "
      "later: start it again as a standby; 1 any other failure.");
}

}  // namespace muster::coordinator
