// muster slurm worker: the process that srun starts on each node of an allocation. Starts the
// node's worker and waits for its end, and removes its folders afterwards.
#include <arpa/inet.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/run/profiler.h"
#include "cli/run/run_memory.h"
#include "cli/scrape_target.h"
#include "cli/slurm/slurm.h"
#include "cli/slurm/slurm_job.h"
#include "cli/slurm/slurm_setup.h"
#include "cli/terminal/child_process.h"
#include "cli/terminal/terminal.h"
#include "common/files/errno_status.h"
#include "common/process/exit_code.h"
#include "common/process/host_name.h"
#include "common/time/time.h"
#include "daemon/process.h"
#include "daemon/trust_options.h"

namespace muster::cli {
namespace {

struct SlurmWorkerOptions {
  std::string coordinator;
  int32_t slots = 1;
  int32_t leave_seconds = 0;
  std::string log_folder;
  std::string profile;
  bool insecure = false;
  bool trusted_network = false;
  std::optional<int32_t> metrics_port;
  std::string metrics_folder;
  std::string cluster;
  ScrapeOwner owner;
  daemon::ClientTrust trust;
};

constexpr auto kPortTime = std::chrono::minutes(1);

// Publishes the address of the worker's page for Prometheus once the worker has written its port
// file. Returns true when that is done.
bool publish_port(const std::string& port_file, const std::string& host, ScrapeTarget& target) {
  std::ifstream file(port_file);
  const auto ports = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!ports.is_object() || !ports.contains("http_port")) return false;
  return target.write(host, ports["http_port"].get<int>()).ok();
}

// Returns this node's address on the route to the coordinator, by which other nodes reach it, too;
// of several coordinators, to the first. Sends nothing.
absl::StatusOr<std::string> own_address(const std::string& coordinators) {
  const std::string coordinator = coordinators.substr(0, coordinators.find(','));
  const size_t colon = coordinator.rfind(':');
  std::string host = coordinator.substr(0, colon);
  if (host.starts_with("[") && host.ends_with("]")) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error =
          getaddrinfo(host.c_str(), coordinator.substr(colon + 1).c_str(), &hints, &found);
      error != 0) {
    return absl::NotFoundError(
        absl::StrCat("the coordinator's host ", host, ": ", gai_strerror(error)));
  }
  const absl::Cleanup release = [&] { freeaddrinfo(found); };
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const absl::Cleanup closed = [fd] { close(fd); };
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  std::array<char, NI_MAXHOST> text{};
  if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(fd, generic, &size) != 0 ||
      getnameinfo(generic, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return errno_status(errno, absl::StrCat("no route to the coordinator at ", coordinator));
  }
  const std::string numeric = text.data();
  return numeric.find(':') == std::string::npos ? numeric : absl::StrCat("[", numeric, "]");
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int run_worker(const SlurmWorkerOptions& options) {
  // Slurm signals every process of a step: the worker handles the signal itself, and this process
  // ends with it. Ignored signals stay ignored over exec; that is right for a profiler only, which
  // outlives the worker and then writes its report.
  for (const int signo : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP})
    signal(signo, options.profile.empty() ? [](int) {} : SIG_IGN);
  const auto address = own_address(options.coordinator);
  if (!address.ok()) return fail(address.status());
  const auto program = sibling_program("muster-worker");
  if (!program.ok()) return fail(program.status());
  const std::string named = variable("SLURMD_NODENAME");
  const std::string node = named.empty() ? host_name() : named;
  // Progress pages are memory-mapped, so they must be on the node's own disk and not on a shared
  // file system.
  const std::string temporary = variable("TMPDIR");
  const auto folder = RunMemory::create(temporary.empty() ? "/tmp" : temporary);
  if (folder == nullptr)
    return fail(absl::FailedPreconditionError("cannot create a folder in $TMPDIR or /tmp"));
  const auto memory = RunMemory::create();
  std::vector<std::string> command = {
      *program,
      "--coordinator",
      options.coordinator,
      "--name",
      node,
      "--slots",
      absl::StrCat(options.slots),
      "--work-dir",
      folder->path(),
      "--http",
      options.metrics_port ? absl::StrCat(*address, ":", *options.metrics_port) : "127.0.0.1:0",
      "--port-file",
      folder->path() + "/ports.json",
      "--rendezvous",
      *address + ":0",
      "--leave-grace",
      absl::StrCat(options.leave_seconds),
      "--die-with-parent",
      "--pass-env",  // the environment of the job's user
      "*"};
  const Variables topology = {
      {"SLURM_TOPOLOGY_ADDR", variable("SLURM_TOPOLOGY_ADDR")},
      {"SLURM_TOPOLOGY_ADDR_PATTERN", variable("SLURM_TOPOLOGY_ADDR_PATTERN")}};
  for (const auto& [flag, value] :
       {std::pair("--switches", switches_of(topology)), std::pair("--domain", domain_of(topology))})
    if (!value.empty()) command.insert(command.end(), {flag, value});
  if (memory != nullptr) command.insert(command.end(), {"--local-dir", memory->path()});
  if (options.insecure) command.emplace_back("--insecure");
  if (options.trusted_network) command.emplace_back("--trusted-network");
  for (const auto& [flag, path] : std::initializer_list<std::pair<const char*, const std::string&>>{
           {"--tls-ca", options.trust.tls_ca},
           {"--tls-cert", options.trust.tls_cert},
           {"--tls-key", options.trust.tls_key},
           {"--token-file", options.trust.token_file}})
    if (!path.empty()) command.insert(command.end(), {flag, path});
  if (!options.profile.empty() && variable("SLURM_NODEID") == "0") {
    // nsys may start the worker on a thread that ends, so the worker must not die with its parent
    // thread.
    std::erase(command, "--die-with-parent");
    if (auto status = put_under_nsys(NsysCapture::kAll, options.profile, command); !status.ok())
      return fail(status);
  }
  const auto worker = ChildProcess::start(
      {.command = std::move(command),
       .output_path = absl::StrCat(options.log_folder, "/worker-", node, ".log")});
  if (!worker.ok()) return fail(worker.status());
  ScrapeTarget target(absl::StrCat(options.metrics_folder, "/", options.owner.worker_file(node)),
                      {.job = "muster-worker", .node = node, .cluster = options.cluster});
  const Instant ports_by = monotonic_now() + kPortTime;
  bool publishes = options.metrics_port.has_value();
  while (true) {
    publishes = publishes && !publish_port(folder->path() + "/ports.json", *address, target) &&
                monotonic_now() < ports_by;
    const auto end = (*worker)->wait(publishes ? std::chrono::milliseconds(250)
                                               : std::chrono::milliseconds(3'600'000));
    if (!end) continue;
    return end->signal != 0 ? 128 + end->signal : end->code;
  }
}

}  // namespace

void declare_slurm_worker(CLI::App& slurm, Action& action) {
  auto options = std::make_shared<SlurmWorkerOptions>();
  CLI::App* command =
      slurm.add_subcommand("worker", "One node's worker; `muster slurm run` has srun start it");
  command->group("");
  command->add_option("--coordinator", options->coordinator, "The coordinator's address")
      ->required();
  command->add_option("--slots", options->slots, "Ranks that may run here at once");
  command->add_option("--leave-seconds", options->leave_seconds,
                      "Grace for ranks to save and leave, in seconds");
  command->add_option("--log-folder", options->log_folder, "Folder for worker-NODE.log")
      ->required();
  command->add_option("--profile", options->profile, "As of muster slurm run");
  command->add_option("--metrics-port", options->metrics_port, "As of muster slurm run");
  command->add_option("--metrics-folder", options->metrics_folder, "As of muster slurm run");
  command->add_option("--metrics-cluster", options->cluster, "The label `cluster` of its series");
  command->add_option("--slurm-cluster", options->owner.cluster, "Slurm's name of itself");
  command->add_option("--slurm-job", options->owner.job, "The job's number, as scontrol takes it");
  command->add_flag("--trusted-network", options->trusted_network, "As of muster slurm fleet");
  daemon::add_trust_options(*command, options->trust, /*environment=*/false);
  command->add_flag("--insecure", options->insecure, "Allow a listener that other nodes can reach");
  on_call(*command, action, options, run_worker);
}

}  // namespace muster::cli
