// Checks of the worker's options and environment before it runs.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <boost/asio/post.hpp>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "common/job/limits.h"
#include "common/job/node_addresses.h"
#include "common/process/host_name.h"
#include "common/process/input_mark.h"
#include "common/process/usable_cpus.h"
#include "common/text/escape.h"
#include "common/version.h"
#include "daemon/client_credentials.h"
#include "daemon/endpoint.h"
#include "daemon/process.h"
#include "worker/gpus/gpu_inventory.h"
#include "worker/shell/network_place.h"
#include "worker/shell/node_identity.h"
#include "worker/shell/ranks/rank_user.h"
#include "worker/shell/worker.h"
#include "worker/stacks/kernel_messages.h"

namespace muster::worker {
namespace {

// Returns an address at which other machines reach this worker's ranks: a wildcard is no address to
// connect to.
std::string reachable_host(const daemon::Endpoint& endpoint) {
  const bool wildcard = endpoint.host == "0.0.0.0" || endpoint.host == "::";
  return wildcard ? host_name() : endpoint.host;
}

absl::Status check_network_devices(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    const std::string name = pattern.substr(pattern.starts_with('!') ? 1 : 0);
    const size_t star = name.find('*');
    if (!name.empty() && name.find('/') == std::string::npos &&
        (star == std::string::npos || star + 1 == name.size()))
      continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--network-devices=", printable(pattern, kNameBytesMax),
                     ": must be the name of a device, mlx5_0 or eth0, or its beginning and *; a "
                     "leading ! omits the device"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> find_trainer(const std::string& option) {
  std::string path = option;
  if (path.empty()) {
    const auto self = daemon::own_executable_path();
    if (!self.ok()) return self.status();
    path = std::filesystem::path(*self).parent_path() / "muster-trainer";
  }
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(path, error);
  if (error || access(absolute.c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat("--trainer=", path,
                                            ": not a program that can be executed; the default is "
                                            "muster-trainer beside muster-worker"));
  }
  return absolute;
}

absl::StatusOr<daemon::Endpoint> check_listener(std::string_view flag, const std::string& text,
                                                bool allowed) {
  auto endpoint = daemon::parse_endpoint(flag, text);
  if (!endpoint.ok()) return endpoint;
  if (auto status = daemon::check_open_exposure(flag, *endpoint, allowed); !status.ok())
    return status;
  return endpoint;
}

// The worker runs what the coordinator requests, so no other process may modify the connection.
absl::Status check_coordinator(const WorkerOptions& options) {
  const auto coordinators = daemon::parse_coordinators(options.coordinator);
  if (!coordinators.ok()) return coordinators.status();
  if (auto status = daemon::read_secrets(options.trust).status(); !status.ok()) return status;
  if (options.run_as_owner && !options.trust.has_tls()) {
    return absl::FailedPreconditionError(
        "--run-as-owner needs --tls-ca: ranks run as the users that the coordinator names, and "
        "without transport security another program could take its place, also with --insecure "
        "and on this machine");
  }
  if (options.trust.has_tls() || options.insecure) return absl::OkStatus();
  const auto remote = std::find_if_not(coordinators->begin(), coordinators->end(),
                                       [](const auto& one) { return daemon::is_loopback(one); });
  if (remote == coordinators->end()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--coordinator=", remote->to_string(),
                   ": it is on another machine, and the connection has no transport security; give "
                   "--tls-ca and --token-file, or pass --insecure if the network is trusted"));
}

// Two workers in one folder would overwrite each other's configs, pages and logs. The lock lasts as
// long as the process; ranks do not inherit its descriptor.
absl::Status lock_work_dir(const std::string& work_dir) {
  const std::string path = work_dir + "/worker.lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return errno_status(errno, absl::StrCat("--work-dir: opening ", path));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    std::string holder(32, '\0');  // a pid
    const ssize_t got = pread(fd, holder.data(), holder.size(), 0);
    holder.resize(got > 0 ? static_cast<size_t>(got) : 0);
    close(fd);
    if (error != EWOULDBLOCK) return errno_status(error, absl::StrCat("locking ", path));
    return absl::FailedPreconditionError(
        absl::StrCat("--work-dir=", work_dir, ": in use by another worker, pid ",
                     printable(holder, 32), "; give this one a folder of its own"));
  }
  const std::string pid = absl::StrCat(getpid());
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) {
    return errno_status(errno, absl::StrCat("--work-dir: writing ", path));
  }
  return absl::OkStatus();
}

// Returns a slot's share of the cores, however many ranks run now: jobs that share the node are
// independent, and a job's speed must not depend on its neighbours.
int32_t cores_per_slot(int32_t slots) { return std::max(1, usable_cpus() / slots); }

std::vector<std::string> current_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) result.emplace_back(*entry);
  return result;
}

void log_gpus(const GpuReport& report) {
  if (!report.is_listed) {
    spdlog::warn("NVML has not listed the GPUs within {} s: this worker offers none",
                 to_seconds(kGpusFoundWithin));
    return;
  }
  spdlog::info("{}", describe_gpus(report));
  for (const std::string& missing : report.missing) spdlog::warn("{}", missing);
}

// An invalid flag is an error; an invalid environment variable, which other programs read, too, is
// only logged.
absl::StatusOr<std::optional<OtlpTarget>> find_otlp(const std::string& flag) {
  const auto value_of = [](const char* name) {
    const char* value = getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string endpoint = flag.empty() ? value_of("OTEL_EXPORTER_OTLP_ENDPOINT") : flag;
  if (endpoint.empty()) return std::nullopt;
  auto target = otlp_target(endpoint, value_of("OTEL_EXPORTER_OTLP_HEADERS"));
  if (target.ok()) return *std::move(target);
  if (!flag.empty()) return target.status();
  spdlog::warn("stack traces are written to files: {}", std::string(target.status().message()));
  return std::nullopt;
}

}  // namespace

GpuWatchOptions gpu_watch_options(GpuWatchOptions options) {
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) options.visible = visible;
  return options;
}

Worker::Worker(const WorkerOptions& options, std::unique_ptr<GpuWatch> gpus,
               LauncherOptions launcher, StackTracerOptions tracer, NodeCheckerOptions checker)
    : incarnation_(launcher.incarnation),
      coordinator_(options.coordinator),
      gpus_(std::move(gpus)),
      network_({.selection = {.sys_root = options.sys_root, .patterns = options.network_devices},
                .on_event = [](const std::string& text) { spdlog::warn("network: {}", text); }}),
      launcher_(std::move(launcher), current_environment()),
      guard_(options.guard),
      reaper_(options.proc_root, options.guard),
      starter_(
          context_, launcher_, reaper_,
          [this](const SpawnRank& request, pid_t pid) { on_started(request, pid); },
          [this](const SpawnRank& request, const absl::Status& problem) {
            on_start_failed(request, problem);
          }),
      metrics_({.version = kVersion,
                .worker = name_of(options),
                .work_dir = options.work_dir,
                .rank_series = options.rank_series}),
      logs_(
          context_, [this](LogChunk&& chunk) { return ship(std::move(chunk)); },
          [this] { send_due_reports(); }, [this](const RankKey& key) { handle(LogSettled{key}); }),
      stream_(context_, options.coordinator, options.trust,
              {.on_message = [this](const v1::CoordinatorMessage& message) { on_message(message); },
               .on_closed = [this](StreamEnd end,
                                   const std::string& reason) { on_closed(end, reason); },
               .on_room = [this] { logs_.pump(); }}),
      end_reader_(context_, launcher_,
                  {.kernel_log = kKernelLog,
                   .foreign_pids = has_foreign_pids(options.proc_root),
                   .gpus = gpus_.get(),
                   .network = &network_},
                  [this](const RankReaped& end) { report_end(end); }),
      stack_reader_(
          context_, launcher_, stack_tools_, options.proc_root,
          {.on_stacks =
               [this](StackResults read) { handle(with_network(with_gpus(std::move(read)))); },
           .on_symbols = [this](SymbolResults read) { handle(std::move(read)); },
           .on_message =
               [this](uint64_t stream, v1::WorkerMessage message) {
                 // Drops messages that an earlier stream requested.
                 if (stream == streams_) stream_.send(std::move(message));
               }}),
      stack_tracer_(context_, stack_tools_, std::move(tracer),
                    [this](const LaunchKey& launch) { return ranks_to_trace(launch); }),
      node_checker_(
          context_, std::move(checker),
          [this](NodeCheckDone done) { handle(with_network(with_gpus(std::move(done)))); }),
      proc_root_(options.proc_root),
      work_dir_(options.work_dir) {
  if (const auto first = InputMark::parse(options.input_mark)) input_.emplace(STDIN_FILENO, *first);
}

absl::StatusOr<std::unique_ptr<Worker>> Worker::create(const WorkerOptions& wanted) {
  if (auto status = check_name(name_of(wanted)); !status.ok()) return status;
  if (auto status = check_network_devices(wanted.network_devices); !status.ok()) return status;
  if (auto status = check_labels(wanted); !status.ok()) return status;
  auto gpus = std::make_unique<GpuWatch>(gpu_watch_options(wanted.gpus));
  WorkerOptions options = wanted;
  if (auto status = check_coordinator(options); !status.ok()) return status;
  const bool may_be_reached = options.insecure || options.trusted_network;
  const auto rendezvous = check_listener("--rendezvous", options.rendezvous, may_be_reached);
  if (!rendezvous.ok()) return rendezvous.status();
  const auto http = check_listener("--http", options.http, may_be_reached);
  if (!http.ok()) return http.status();
  auto trainer = find_trainer(options.trainer);
  if (!trainer.ok()) return trainer.status();
  auto otlp = find_otlp(options.otlp_endpoint);
  if (!otlp.ok()) return otlp.status();
  if (auto status = daemon::make_writable_directory(options.work_dir); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("--work-dir: ", status.message()));
  }
  std::error_code error;
  const std::string work_dir = std::filesystem::canonical(options.work_dir, error);
  if (error) return errno_status(error.value(), absl::StrCat("--work-dir=", options.work_dir));
  if (auto status = lock_work_dir(work_dir); !status.ok()) return status;
  const std::string check_program = find_node_check_program(*trainer);
  if (options.run_as_owner) {
    const std::vector<FlaggedFile> files = files_of_worker(options.trust, *trainer, check_program);
    if (auto status = admit_users(work_dir, files); !status.ok()) return status;
  }
  const std::string local_dir = std::filesystem::absolute(options.local_dir, error);
  if (error) return errno_status(error.value(), absl::StrCat("--local-dir=", options.local_dir));
  const auto incarnation = daemon::draw_random_id();
  if (!incarnation.ok()) return incarnation.status();
  if (auto status = Reaper::adopt_orphans(); !status.ok()) return status;
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);

  const GpuReport found = gpus->wait_until_found(kGpusFoundWithin);
  log_gpus(found);
  if (options.slots == 0)
    options.slots =
        std::clamp<int32_t>(static_cast<int32_t>(found.gpus.size()), 1, kRanksPerNodeMax);
  std::unique_ptr<Worker> worker(new Worker(options, std::move(gpus),
                                            {.work_dir = work_dir,
                                             .trainer = *std::move(trainer),
                                             .bind_address = reachable_host(*rendezvous),
                                             .incarnation = Incarnation(*incarnation),
                                             .rank_umask = options.rank_umask,
                                             .rank_open_files = options.rank_open_files,
                                             .threads_per_rank = cores_per_slot(options.slots),
                                             .proc_root = options.proc_root,
                                             .local_dir = local_dir,
                                             .gpus = found.gpus,
                                             .pass_env = options.pass_env,
                                             .pin_ranks = options.pin_ranks,
                                             .run_as_owner = options.run_as_owner,
                                             .run_root_jobs = options.run_root_jobs},
                                            {.worker = name_of(options),
                                             .folder = options.stack_trace_dir,
                                             .otlp = *std::move(otlp),
                                             .is_private = options.run_as_owner},
                                            {.program = check_program,
                                             .work_dir = work_dir,
                                             .local_dir = local_dir,
                                             .gpus = visible_gpus(found),
                                             .bind_address = reachable_host(*rendezvous)}));
  worker->missing_gpus_ = missing_gpus(work_dir + "/gpus.json", found);
  for (const std::string& missing : worker->missing_gpus_) spdlog::warn("{}", missing);
  worker->no_gpus_because_ = missing_gpus_reason(found);
  if (auto status = worker->listen(options, *rendezvous); !status.ok()) return status;
  return worker;
}

absl::Status Worker::listen(const WorkerOptions& options, const daemon::Endpoint& rendezvous) {
  boost::system::error_code error;
  signals_.add(SIGCHLD, error);
  for (const int signo : daemon::leave_signals()) signals_.add(signo, error);
  signals_.add(SIGUSR1,
               error);  // sent by Slurm to all processes of a step before its time limit
  if (error) return absl::InternalError(absl::StrCat("handling signals: ", error.message()));
  auto store = RendezvousServer::start(context_, rendezvous);
  if (!store.ok()) return store.status();
  rendezvous_ = *std::move(store);
  auto http = daemon::HttpServer::start(options.http, {.pages = pages()});
  if (!http.ok()) return http.status();
  http_ = *std::move(http);

  spdlog::info("version {} serves HTTP on port {} and the rendezvous on port {}", kVersion,
               http_->port(), rendezvous_->port());
  const daemon::Endpoint reachable{reachable_host(rendezvous), rendezvous_->port()};
  if (auto ports = ProgramPorts::reserve(options.proc_root, incarnation_.value()); ports.ok()) {
    program_ports_ = *std::move(ports);
  } else {
    spdlog::warn("runs only the trainer, no other programs: {}",
                 std::string(ports.status().message()));
  }
  auto place = read_network_place(options);
  if (!place.ok()) return place.status();
  core_ = std::make_unique<Core>(
      CoreOptions{.name = WorkerName(name_of(options)),
                  .incarnation = incarnation_,
                  .version = kVersion,
                  .host = host_name(),
                  .slots = options.slots,
                  .rendezvous_address = reachable.to_string(),
                  .addresses = node_addresses(),
                  .program_ports = program_ports_ ? program_ports_->range() : PortRange{},
                  .switches = std::move(place->switches),
                  .domain = std::move(place->domain),
                  .labels = labels_of(options),
                  .gpus = launcher_.gpus(),
                  .no_gpus_because = no_gpus_because_,
                  .leave_grace = options.leave_grace},
      monotonic_now());
  if (options.port_file.empty()) return absl::OkStatus();
  const nlohmann::json ports = {
      {"http_port", http_->port()}, {"rendezvous_port", rendezvous_->port()}, {"pid", getpid()}};
  return write_file_atomically(options.port_file, ports.dump() + "\n",
                               {.mode = daemon::kPortFileMode});
}

std::map<std::string, daemon::HttpHandler> Worker::pages() {
  constexpr const char* kText = "text/plain; charset=utf-8";
  return {
      {"/metrics",
       [this](const daemon::HttpReply& reply) {
         metrics_.set_gpus(gpus_->report(), monotonic_now());
         metrics_.set_network(network_.report(), monotonic_now());
         reply({200, "text/plain; version=0.0.4; charset=utf-8", metrics_.text(monotonic_now())});
       }},
      // Served by the event loop itself: if the loop hangs, the page does not answer.
      {"/healthz",
       [this](const daemon::HttpReply& reply) {
         boost::asio::post(context_, [reply] { reply({200, kText, "ok\n"}); });
       }},
      {"/readyz", [this](const daemon::HttpReply& reply) {
         if (metrics_.registered()) return reply({200, kText, "ok\n"});
         // A worker whose ranks keep running is ready even if the coordinator is absent for a
         // while.
         if (metrics_.has_ranks())
           return reply({200, kText, "its ranks run on without " + coordinator_ + "\n"});
         reply({503, kText, "not registered with " + coordinator_ + "\n"});
       }}};
}

}  // namespace muster::worker
