// muster-worker: the agent of one node. See worker/shell/worker.h.
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "common/job/limits.h"
#include "common/process/exit_code.h"
#include "common/process/input_mark.h"
#include "common/process/standard_descriptors.h"
#include "common/process/start_limits.h"
#include "daemon/command_line.h"
#include "daemon/help.h"
#include "daemon/logging.h"
#include "daemon/metric_words.h"
#include "daemon/process.h"
#include "daemon/trust_options.h"
#include "worker/shell/ranks/rank_guard.h"
#include "worker/shell/worker.h"
#include "worker/stacks/lone_thread.h"

namespace {

constexpr const char* kExamples = R"(Examples:
  # A worker with four slots on the coordinator's machine
  muster-worker --coordinator 127.0.0.1:7070 --slots 4 --work-dir /var/lib/muster/worker

  # Two workers on one machine: each needs a name and a folder of its own
  muster-worker --name node0 --slots 2 --work-dir /tmp/muster/node0
  muster-worker --name node1 --slots 2 --work-dir /tmp/muster/node1

  # On a trusted network, reachable by the ranks of other nodes
  muster-worker --coordinator head:7070 --rendezvous 10.0.0.5:0 --slots 8 --work-dir /scratch/muster --insecure

  # Three coordinators with a common store (docs/operations.md)
  muster-worker --coordinator a:7070,b:7070,c:7070 --rendezvous 10.0.0.5:0 --slots 8 --work-dir /scratch/muster --insecure

  # A coordinator that requires authentication; the files may change while it runs
  muster-worker --coordinator head:7070 --rendezvous 10.0.0.5:0 --slots 8 --work-dir /scratch/muster --trusted-network \
    --tls-ca ca.crt --token-file worker.token

With an NVIDIA driver, the node's GPUs are found by themselves, those that CUDA_VISIBLE_DEVICES leaves. Ranks of jobs that use
GPUs have one each, and no other job is put on it.

A rank computes with the node's cores divided by --slots (at least one thread), so that jobs which share the node do
not take each other's. A container's quota of CPU time counts: half a core is one thread. OMP_NUM_THREADS in this program's or the job's environment, or
threads_per_rank in the job's config, replaces this number.

The worker reconnects for as long as it runs, and its ranks continue while the coordinator is away.
SIGTERM, or SIGUSR1, makes it leave: all ranks of its jobs save a checkpoint and leave, also those on other workers. The jobs
resume from it elsewhere, or here once a worker has returned, and this counts as no restart. Ranks that are left after
--leave-grace are killed; make it shorter than the time that the stopping system gives the worker. A second SIGTERM 2 s or more later, or a Ctrl-C 0.5 s or more later, kills at once.
Exit codes: 0 left on request (or --leave-exit-code), 2 wrong options or refused by the coordinator (its version, its name).)";

struct WorkerCommandLine {
  muster::worker::WorkerOptions options;
  std::string log_level = "info";
  std::string log_format = "text";
  int32_t leave_grace_seconds =
      static_cast<int32_t>(muster::worker::kLeaveGrace / std::chrono::seconds(1));
  bool die_with_parent = false;
};

// Lets programs list the GPUs before they start a worker.
void list_gpus() {
  muster::worker::GpuWatch watch(muster::worker::gpu_watch_options({}));
  const auto report = watch.wait_until_found(muster::worker::kGpusFoundWithin);
  nlohmann::json gpus = nlohmann::json::array();
  for (const auto& state : report.gpus) {
    gpus.push_back({{"index", state.gpu.index},
                    {"uuid", state.gpu.uuid},
                    {"name", state.gpu.name},
                    {"memory_bytes", state.gpu.memory_bytes},
                    {"numa_node", state.gpu.numa_node}});
  }
  const nlohmann::json found = {
      {"gpus", gpus}, {"driver", report.driver}, {"sentence", describe_gpus(report)}};
  std::cout << found.dump() << std::endl;
  throw CLI::Success();
}

void describe(CLI::App& app, WorkerCommandLine& line) {
  constexpr int64_t kLeaveGraceSecondsMax = 7 * 86'400;
  muster::daemon::use_our_help(app);
  muster::worker::WorkerOptions& options = line.options;
  // Users override a wrapper's defaults by appending to its command line.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--coordinator", options.coordinator,
                 "Address of the coordinator's gRPC port, or the addresses of several that share a "
                 "store: the worker follows the one that leads")
      ->type_name("HOST:PORT,…")
      ->capture_default_str();
  app.add_option("--name", options.name,
                 "This worker's name, unique in the fleet (default: the host's name)")
      ->type_name("NAME");
  muster::daemon::add_count(app, "--slots", options.slots,
                            "Ranks that may run here at once (default: one for each GPU, or 1)", 1,
                            muster::kRanksPerNodeMax);
  app.add_flag("--pin-ranks,!--no-pin-ranks", options.pin_ranks,
               "Keep a rank with a GPU of its own on the CPUs near that GPU (default: yes)");
  app.add_flag_callback("--list-gpus", list_gpus,
                        "Print as JSON which GPUs a worker would have here, and exit");
  app.add_option("--switches", options.switches,
                 "The switches above this node, the outermost first: spine.leaf3. Ranks are placed "
                 "so that neighbours share one")
      ->envname("MUSTER_WORKER_SWITCHES")
      ->type_name("A.B");
  app.add_option("--domain", options.domain,
                 "The NVLink domain of this node, for example its rack. A lost node is replaced by "
                 "one of its domain first")
      ->envname("MUSTER_WORKER_DOMAIN")
      ->type_name("NAME");
  app.add_option("--switches-file", options.switches_file,
                 "A file whose first line replaces --switches, and its second line --domain")
      ->type_name("FILE");
  muster::daemon::add_list(app, "--label", options.labels, "NAME=VALUE",
                           "A property of this node that jobs can require (muster submit "
                           "--select); may be repeated")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  muster::daemon::add_list(app, "--taint", options.taints, "NAME=VALUE",
                           "Only jobs with this --tolerate get ranks here; may be repeated")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--work-dir", options.work_dir,
                 "Folder for configs, progress pages and logs of ranks")
      ->type_name("FOLDER")
      ->required();
  app.add_option("--local-dir", options.local_dir,
                 "Folder in memory where jobs keep local checkpoints")
      ->type_name("FOLDER")
      ->envname("MUSTER_LOCAL_DIR")
      ->capture_default_str();
  app.add_option("--http", options.http,
                 "Serves /metrics, /healthz and /readyz; port 0 picks a free one")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option(
         "--rendezvous", options.rendezvous,
         "Address of the rendezvous store, whose host ranks bind to; port 0 picks a free one")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option(
         "--trainer", options.trainer,
         "Program to run as a rank (default: muster-trainer beside this program); SIGTERM and "
         "SIGUSR1 make it save and leave")
      ->type_name("FILE");
  app.add_option("--port-file", options.port_file,
                 "Write the ports as JSON to this file once ready")
      ->type_name("FILE");
  muster::daemon::add_count(app, "--leave-grace", line.leave_grace_seconds,
                            "Seconds that ranks get to save and leave when this worker is stopped",
                            1, kLeaveGraceSecondsMax)
      ->type_name("SECONDS")
      ->capture_default_str();
  muster::daemon::add_count(
      app, "--leave-exit-code", options.leave_exit_code,
      "Exit code of this program after it was stopped: 75 in a Kubernetes Job, which takes 0 "
      "for finished work and starts no other worker",
      0, 125)
      ->capture_default_str();
  app.add_option("--pass-env", options.pass_env,
                 "Credentials of this program's environment that users' programs get, as names or "
                 "beginnings: HF_TOKEN,AWS_*; * for all. Without this they get every variable but "
                 "those with TOKEN, SECRET, PASSWORD, CREDENTIALS or KEY in their name; the "
                 "trainer gets all")
      ->type_name("NAME,…")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  CLI::Option* const as_owner =
      app.add_flag(
             "--run-as-owner", options.run_as_owner,
             "Run each rank as the user of this node that has the name of the job's owner, "
             "instead of this program's user, which must be root. Needs --tls-ca. Jobs without "
             "an owner are refused. Of this program's environment ranks get only variables about "
             "the node "
             "(PATH, LANG, TZ, CUDA_*, NCCL_*, …) and those of --pass-env")
          ->group("Trust");
  app.add_flag("--run-root-jobs", options.run_root_jobs, "Run jobs of root, too")
      ->needs(as_owner)
      ->group("Trust");
  app.add_option("--network-devices", options.network_devices,
                 "Network devices that the node's check and the causes of faults depend on, as "
                 "names or beginnings: mlx5_*,eth0; !NAME omits one (default: all ports of "
                 "InfiniBand and RoCE; Ethernet if there are none)")
      ->type_name("NAME,…")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--sys-root", options.sys_root,
                 "Folder of sysfs in which network devices are found")
      ->type_name("FOLDER")
      ->capture_default_str();
  // `muster run` passes its own input on by this.
  app.add_option("--pass-stdin", options.input_mark,
                 "Give this program's standard input, marked so, to rank 0 of programs")
      ->check([](const std::string& mark) {
        return muster::InputMark::parse(mark) ? "" : "is no mark of an input";
      })
      ->group("");
  app.add_flag("--die-with-parent", line.die_with_parent,
               "Leave when the process that started this one ends");
  muster::daemon::add_trust_options(app, options.trust, /*environment=*/false);
  app.add_flag("--trusted-network", options.trusted_network,
               "Allow --http and --rendezvous, which have no transport security, on addresses that "
               "other machines can reach")
      ->group("Trust");
  app.add_flag("--insecure", options.insecure,
               "The same, and a coordinator on another machine without TLS")
      ->group("Trust");
  app.add_option("--stack-trace-dir", options.stack_trace_dir,
                 "Folder for the traces of jobs with stack_trace_to_cloud=True, for a log agent")
      ->type_name("FOLDER")
      ->envname("MUSTER_STACK_TRACE_DIR")
      ->capture_default_str();
  app.add_option("--otlp-endpoint", options.otlp_endpoint,
                 "Send the traces of --stack-trace-dir to an OpenTelemetry collector instead, "
                 "http://host:port (default: "
                 "OTEL_EXPORTER_OTLP_ENDPOINT)")
      ->type_name("URL");
  muster::daemon::add_count(
      app, "--rank-series", options.rank_series,
      "Ranks of a job, spread evenly, with their own metrics; totals cover all", 0,
      muster::daemon::kSeriesSampleMax)
      ->capture_default_str();
  app.add_option("--log-level", line.log_level, "trace, debug, info, warning, error or off")
      ->type_name("LEVEL")
      ->capture_default_str();
  app.add_option("--log-format", line.log_format,
                 "text, or json: one object per line, with job, attempt and rank")
      ->type_name("FORMAT")
      ->capture_default_str();
  app.footer(kExamples);
}

// The ranks are gone and the coordinator has acknowledged it. A thread that is joined at exit may
// hang in a read of a dead file system.
constexpr auto kEnd = std::chrono::seconds(10);

// Best effort: does nothing if the system has no room for a thread.
void end_within(std::chrono::seconds deadline, int exit_code) {
  muster::worker::start_lone_thread([deadline, exit_code] {
    std::this_thread::sleep_for(deadline);
    std::cerr << "muster-worker: a file that is being read does not answer; leaving without it\n";
    _exit(exit_code);
  });
}

int fail(const absl::Status& status) {
  std::cerr << "muster-worker: " << std::string(status.message()) << "\n";
  return muster::to_int(muster::ExitCode::kBadInput);
}

}  // namespace

int main(int argc, char** argv) {
  muster::hold_standard_descriptors();
  muster::name_limits_at_abort("muster-worker");
  WorkerCommandLine line;
  // Configs and logs are private to their user; files that the ranks write elsewhere use the modes
  // that the user configured.
  line.options.rank_umask = umask(S_IRWXG | S_IRWXO);
  line.options.rank_open_files = muster::daemon::raise_open_files_limit();
  CLI::App app("Runs the ranks of Muster jobs on this node", "muster-worker");
  describe(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return fail(muster::daemon::explain(app, error));
  }
  line.options.leave_grace = std::chrono::seconds(line.leave_grace_seconds);
  if (line.die_with_parent) {
    if (auto status = muster::daemon::die_with_parent(); !status.ok()) return fail(status);
  }
  if (auto status =
          muster::daemon::set_up_logging("muster-worker", line.log_level, line.log_format);
      !status.ok()) {
    return fail(status);
  }
  // A rank needs some descriptors: its log, its page, its process.
  muster::StartNeeds needs = muster::kWorkerNeeds;
  needs.open_files += static_cast<uint64_t>(line.options.slots) * 2;
  if (auto status = muster::check_start_needs("the worker", needs); !status.ok())
    return fail(status);
  auto guard = muster::worker::RankGuard::start({argv, static_cast<size_t>(argc)});
  if (!guard.ok()) return fail(guard.status());
  line.options.guard = guard->get();
  auto worker = muster::worker::Worker::create(line.options);
  if (!worker.ok()) return fail(worker.status());
  const int ran = (*worker)->run();
  const int exit_code = ran == 0 ? line.options.leave_exit_code : ran;
  end_within(kEnd, exit_code);
  worker->reset();
  return exit_code;
}
