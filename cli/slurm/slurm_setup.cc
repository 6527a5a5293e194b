#include "cli/slurm/slurm_setup.h"

#include <netdb.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "cli/run/run_command.h"
#include "cli/slurm/slurm_commands.h"
#include "cli/terminal/terminal.h"
#include "common/files/errno_status.h"
#include "daemon/help.h"
#include "daemon/process.h"

namespace muster::cli {
namespace {

constexpr int32_t kLeaveSecondsMax = 86'400;

Variables own_variables() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

// Resolves "node1" to "10.0.0.5".
absl::StatusOr<std::string> numeric(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return absl::NotFoundError(absl::StrCat("this node's address ", host, ": ", gai_strerror(error),
                                            "; give the address for other nodes with --address"));
  }
  const absl::Cleanup release = [&] { freeaddrinfo(found); };
  std::array<char, NI_MAXHOST> text{};
  getnameinfo(found->ai_addr, found->ai_addrlen, text.data(), text.size(), nullptr, 0,
              NI_NUMERICHOST);
  return std::string(text.data());
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

absl::Status reachable_by_others(const std::string& where) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the coordinator would listen at ", where,
      ", and everybody who can reach it could run jobs as you; give --insecure to allow that"));
}

absl::StatusOr<std::string> address_of_node(const SlurmJob& job) {
  const auto nodes = query_slurm_nodes(job.node);
  if (!nodes.ok()) return nodes.status();
  for (const SlurmNode& node : *nodes)
    if (node.name == job.node && !node.address.empty()) return node.address;
  return absl::NotFoundError(absl::StrCat("Slurm has no address of node ", job.node));
}

}  // namespace

void add_slurm_options(CLI::App& command, SlurmOptions& options) {
  command
      .add_option("--container", options.container,
                  "Run workers and ranks in this image, where Slurm has pyxis; it needs Muster's "
                  "libraries")
      ->type_name("IMAGE");
  daemon::add_list(command, "--container-mounts", options.mounts, "FROM:TO",
                   "Mounts of the container besides Muster, the output and the current folder")
      ->delimiter(',');
  command
      .add_option("--address", options.address,
                  "This node's address for other nodes (default: the one in Slurm)")
      ->type_name("HOST");
  command.add_flag("--insecure", options.insecure,
                   "Allow listeners that other machines can reach, which jobs of several nodes "
                   "need: everybody who reaches them can run jobs as you");
  command
      .add_option("--metrics-port", options.metrics_port,
                  "Serve the workers' /metrics on the nodes' addresses, at this port (0: any), for "
                  "Prometheus; needs --insecure, or --trusted-network for a fleet")
      ->type_name("PORT")
      ->transform(daemon::whole_number(0, 65'535));
  command
      .add_option("--metrics-folder", options.metrics_folder,
                  "Folder for files with those addresses for Prometheus; jobs may share it "
                  "(default: prometheus in the output folder, or in a fleet's --log-folder)")
      ->type_name("FOLDER");
  command.add_flag("--no-requeue", options.no_requeue,
                   "Do not requeue the job: exit with 75 after a checkpoint");
  daemon::add_count(
      command, "--max-turns", options.allocations_max,
      absl::StrCat(
          "Number of starts of the job in total, after which it is not requeued (default: ",
          kAllocationsDefault, "; for a chain the number of its tasks)"),
      1, kAllocationsMax);
  daemon::add_count(
      command, "--leave-seconds", options.leave_seconds,
      "Grace for ranks to save a checkpoint and leave, in seconds; Slurm may grant less", 1,
      kLeaveSecondsMax)
      ->capture_default_str();
}

absl::StatusOr<SlurmJob> enter_slurm_job() {
  auto job = slurm_job(own_variables());
  if (!job.ok()) return job;
  // A job that an array task has submitted inherits the array's variables.
  const char* number = std::getenv("SLURM_JOB_ID");
  if (number != nullptr && job->id != number && query_slurm_job(*job).id != number) {
    job->id = number;
    job->array.clear();
  }
  const auto names = output_of({"scontrol", "show", "hostnames", job->nodes}, kSlurmDeadline);
  if (!names.ok()) return names.status();
  job->node_names = absl::StrSplit(*names, '\n', absl::SkipEmpty());
  for (const char* name : {"SLURM_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_GPUS_PER_TASK",
                           "SLURM_NTASKS_PER_GPU", "SLURM_THREADS_PER_CORE"})
    unsetenv(name);
  return job;
}

absl::StatusOr<std::string> listen_host(const SlurmJob& job, const SlurmOptions& options) {
  if (job.node_count == 1 && !options.metrics_port) return "127.0.0.1";
  auto named = options.address.empty() ? address_of_node(job) : options.address;
  if (!named.ok()) return named.status();
  auto address = numeric(*named);
  if (!address.ok()) return address.status();
  if (is_loopback(*address) || options.insecure) return address;
  return reachable_by_others(*address);
}

absl::Status check_listener(int32_t nodes, const SlurmOptions& options) {
  if ((nodes == 1 && !options.metrics_port) || options.insecure) return absl::OkStatus();
  if (options.address.empty()) return reachable_by_others("its first node's address");
  const auto address = numeric(options.address);
  if (address.ok() && is_loopback(*address)) return absl::OkStatus();
  return reachable_by_others(options.address);
}

absl::StatusOr<StepPlan> step_plan(const SlurmJob& job, const SlurmOptions& options,
                                   const std::string& coordinator, int32_t slots,
                                   const std::vector<std::string>& folders) {
  const auto program = daemon::own_executable_path();
  if (!program.ok()) return program.status();
  std::error_code error;
  StepPlan plan{.nodes = job.node_count,
                .program = *program,
                .coordinator = coordinator,
                .slots = slots,
                .leave_seconds = options.leave_seconds,
                .insecure = options.insecure,
                .trusted_network = options.trusted_network,
                .trust = {},
                .metrics_port = options.metrics_port,
                .log_folder = folders.at(0),
                .profile = options.profile,
                .gpus_per_node = 0,
                .container = "",
                .mounts = {},
                .working_directory = std::filesystem::current_path(error).string()};
  if (const char* gpus = std::getenv("SLURM_GPUS_ON_NODE"); gpus != nullptr)
    if (!absl::SimpleAtoi(gpus, &plan.gpus_per_node)) plan.gpus_per_node = 0;
  if (options.container.empty()) return plan;
  if (!has_pyxis()) {
    warn(absl::StrCat("--container ", options.container,
                      " has no effect: this Slurm's srun has no --container-image (pyxis); the "
                      "job runs on the nodes as they are"));
    return plan;
  }
  plan.container = options.container;
  const std::string bin = std::filesystem::path(*program).parent_path().string();
  plan.mounts = {absl::StrCat(bin, ":", bin),
                 absl::StrCat(plan.working_directory, ":", plan.working_directory)};
  for (const std::string& folder : folders)
    if (!folder.empty()) plan.mounts.push_back(absl::StrCat(folder, ":", folder));
  plan.mounts.insert(plan.mounts.end(), options.mounts.begin(), options.mounts.end());
  return plan;
}

ScrapeOwner scrape_owner(const SlurmJob& job) { return {slurm_cluster(job), job.id}; }

absl::StatusOr<std::string> scrape_folder(const SlurmJob& job, const SlurmOptions& options,
                                          const std::string& folder) {
  if (!options.metrics_port) return "";
  std::error_code error;
  const std::string path = std::filesystem::absolute(
      options.metrics_folder.empty() ? folder : options.metrics_folder, error);
  if (auto status = daemon::make_writable_directory(path); !status.ok()) return status;
  const auto removed = remove_dead_targets(path, scrape_owner(job), query_started_jobs);
  if (!removed.ok()) {
    warn(absl::StrCat("addresses in ", path,
                      " may belong to finished jobs: ", std::string(removed.status().message())));
  } else if (*removed > 0) {
    warn(absl::StrCat(*removed, *removed == 1 ? " address" : " addresses", " in ", path,
                      " of killed jobs or earlier allocations removed"));
  }
  return path;
}

absl::StatusOr<SlurmSignals> SlurmSignals::block() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signo : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&signals, signo);
  if (const int error = pthread_sigmask(SIG_BLOCK, &signals, nullptr); error != 0)
    return errno_status(error, "blocking signals");
  const int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return errno_status(errno, "signalfd");
  return SlurmSignals(fd);
}

int SlurmSignals::take() const {
  signalfd_siginfo info;
  if (read(fd_, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) return 0;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace muster::cli
