#include "cli/slurm/slurm_step.h"

#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "cli/run/run_command.h"

namespace muster::cli {
namespace {

constexpr size_t kLogTailBytes = 4 << 10;

// srun forks a helper that cancels the step when srun dies, so that the helper is killed first. The
// helper is a child of srun's main thread.
std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::ifstream file(absl::StrCat("/proc/", pid, "/task/", pid, "/children"));
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

}  // namespace

std::vector<std::string> srun_command(const StepPlan& plan) {
  std::vector<std::string> words = {
      "srun", absl::StrCat("--nodes=", plan.nodes), absl::StrCat("--ntasks=", plan.nodes),
      "--ntasks-per-node=1", absl::StrCat("--job-name=", kStepName),
      // Overrides site defaults for MPI programs, and for scripts that hide the submitter's
      // environment: ranks need the variables that the script has set.
      "--mpi=none", "--export=ALL", "--overlap", "--no-kill", "--kill-on-bad-exit=0", "--wait=0",
      "--cpu-bind=none", "--input=none"};
  if (plan.gpus_per_node > 0) words.push_back(absl::StrCat("--gpus-per-node=", plan.gpus_per_node));
  if (!plan.container.empty()) {
    words.push_back("--container-image=" + plan.container);
    std::vector<std::string> mounts = plan.mounts;
    for (const std::string& path :
         {plan.trust.tls_ca, plan.trust.tls_cert, plan.trust.tls_key, plan.trust.token_file})
      if (!path.empty()) mounts.push_back(absl::StrCat(path, ":", path));
    words.push_back("--container-mounts=" + absl::StrJoin(mounts, ","));
    words.push_back("--container-workdir=" + plan.working_directory);
  }
  words.insert(words.end(), {plan.program, "slurm", "worker", "--coordinator", plan.coordinator,
                             "--slots", absl::StrCat(plan.slots), "--leave-seconds",
                             absl::StrCat(plan.leave_seconds), "--log-folder", plan.log_folder});
  if (!plan.profile.empty()) words.insert(words.end(), {"--profile", plan.profile});
  if (plan.insecure) words.push_back("--insecure");
  if (plan.trusted_network) words.push_back("--trusted-network");
  if (plan.metrics_port) {
    words.push_back(absl::StrCat("--metrics-port=", *plan.metrics_port));
    words.push_back("--metrics-folder=" + plan.scrape_folder);
    words.push_back("--metrics-cluster=" + plan.cluster);
    words.push_back("--slurm-cluster=" + plan.scrape_owner.cluster);
    words.push_back("--slurm-job=" + plan.scrape_owner.job);
  }
  for (const auto& [flag, path] : std::initializer_list<std::pair<const char*, const std::string&>>{
           {"--tls-ca=", plan.trust.tls_ca},
           {"--tls-cert=", plan.trust.tls_cert},
           {"--tls-key=", plan.trust.tls_key},
           {"--token-file=", plan.trust.token_file}})
    if (!path.empty()) words.push_back(flag + path);
  return words;
}

bool has_pyxis() {
  const auto help = run_command({"srun", "--help"}, std::chrono::seconds(20));
  return help.ok() && absl::StrContains(help->output + help->errors, "--container-image");
}

absl::StatusOr<std::unique_ptr<WorkerStep>> WorkerStep::start(const StepPlan& plan) {
  std::vector<std::string> command = srun_command(plan);
  auto path = output_of({"sh", "-c", "command -v srun"}, std::chrono::seconds(20));
  if (!path.ok()) return absl::NotFoundError("no srun in PATH");
  command[0] = path->substr(0, path->find('\n'));
  const std::string log = plan.log_folder + "/srun.log";
  auto srun = ChildProcess::start({.command = std::move(command), .output_path = log});
  if (!srun.ok()) return srun.status();
  return std::unique_ptr<WorkerStep>(new WorkerStep(*std::move(srun), log));
}

absl::Status WorkerStep::health() {
  if (srun_ == nullptr) return absl::OkStatus();
  const auto end = srun_->wait(std::chrono::milliseconds(0));
  if (!end) return absl::OkStatus();
  const std::string log_tail = tail_of_file(log_, kLogTailBytes);
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot start the workers: srun ended with ",
      end->signal != 0 ? absl::StrCat("signal ", end->signal) : absl::StrCat(end->code),
      log_tail.empty() ? "" : ":\n", log_tail));
}

void WorkerStep::release_srun() {
  if (srun_ == nullptr) return;
  const std::vector<pid_t> helpers = children_of(srun_->pid());
  if (helpers.empty()) return;  // an undetected helper would cancel the step
  for (const pid_t helper : helpers) kill(helper, SIGKILL);
  srun_.reset();  // sends SIGKILL
}

}  // namespace muster::cli
