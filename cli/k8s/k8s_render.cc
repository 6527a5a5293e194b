// muster k8s render: prints a job as Kubernetes objects.
#include <algorithm>
#include <optional>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "cli/jobs/job_arguments.h"
#include "cli/jobs/job_file.h"
#include "cli/k8s/k8s.h"
#include "cli/k8s/k8s_objects.h"
#include "cli/plan/admission.h"
#include "cli/plan/plan_comparison.h"
#include "cli/terminal/terminal.h"
#include "cli/text/first_use.h"
#include "common/job/limits.h"
#include "common/objects/object_url.h"
#include "daemon/help.h"
#include "jobspec/files/yaml_text.h"

namespace muster::cli {
namespace {

constexpr int32_t kPodDevicesMax = 1024;
constexpr int32_t kPodLeaveSecondsMax = 86'400;

struct RenderOptions {
  JobArguments job;
  K8sPlan plan;
  std::vector<std::string> mounts;
  std::vector<std::string> node_selector;
  bool json = false;
};

absl::StatusOr<v1::JobSpec> resolved(const JobArguments& job) {
  if (job.is_program()) return load_program(job);
  auto loaded = load_job_and_data(job, FirstUse::kElsewhere);
  if (!loaded.ok()) return loaded.status();
  return std::move(loaded->spec);
}

absl::Status read_lists(const RenderOptions& options, K8sPlan& plan) {
  for (const std::string& text : options.mounts) {
    auto mount = parse_k8s_mount(text);
    if (!mount.ok()) return mount.status();
    plan.mounts.push_back(*std::move(mount));
  }
  for (const std::string& text : options.node_selector) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos)
      return absl::InvalidArgumentError(
          absl::StrCat("--node-selector ", text, ": must be LABEL=VALUE"));
    plan.node_selector.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return absl::OkStatus();
}

// Rejects an output folder outside of all mounts: a pod's own folders are lost with it.
absl::Status check_output(const K8sPlan& plan, const v1::JobSpec& spec) {
  if (is_object_url(spec.output_directory()) || is_mounted(plan, spec.output_directory()))
    return absl::OkStatus();
  const std::string where =
      absl::StrCat("the job's folder ", spec.output_directory(), " is in no --mount");
  if (spec.command_size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(where,
                     ": its checkpoints would be lost with their pods; set base_output_directory "
                     "to a folder of a mount that all workers share"));
  }
  warn(absl::StrCat(where, ": files that the program writes there are lost with its pod"));
  return absl::OkStatus();
}

// Checks that libfabric's huge-page setting matches the pods' huge pages.
absl::Status check_huge_pages(const K8sPlan& plan, const v1::JobSpec& spec) {
  const auto setting = spec.environment().find("FI_EFA_USE_HUGE_PAGE");
  if (setting == spec.environment().end()) return absl::OkStatus();
  const std::string value = absl::AsciiStrToLower(setting->second);
  const bool enabled = value != "0" && value != "false" && value != "no" && value != "off";
  if (!enabled && !plan.huge_pages.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--huge-pages ", plan.huge_pages,
        " have no use with --env FI_EFA_USE_HUGE_PAGE=", setting->second, ": omit one of them"));
  }
  if (enabled && plan.efa > 0 && plan.huge_pages.empty()) {
    return absl::InvalidArgumentError(
        "--env FI_EFA_USE_HUGE_PAGE without --huge-pages: libfabric would find none; AWS "
        "recommends "
        "--huge-pages 5120Mi");
  }
  return absl::OkStatus();
}

absl::StatusOr<K8sPlan> plan_of(const RenderOptions& options, const v1::JobSpec& spec) {
  K8sPlan plan = options.plan;
  if (auto status = read_lists(options, plan); !status.ok()) return status;
  if (plan.name.empty()) plan.name = k8s_name(spec.name());
  if (plan.name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the run's name ", spec.name(),
        " has no letter that a Kubernetes name may have; set another name with --k8s-name"));
  }
  plan.workers = spec.nodes() + spec.spares();
  plan.slots = spec.ranks_per_node();
  auto file = job_file_of(spec);
  if (!file.ok()) return file.status();
  plan.job_file = *std::move(file);
  if (auto status = check_k8s_plan(plan); !status.ok()) return status;
  if (auto status = check_huge_pages(plan, spec); !status.ok()) return status;
  if (auto status = check_output(plan, spec); !status.ok()) return status;
  return plan;
}

// Labels whose values name the GPUs of a node.
constexpr const char* kGpuLabels[] = {"nvidia.com/gpu.product", "cloud.google.com/gke-accelerator",
                                      "karpenter.k8s.aws/instance-gpu-name",
                                      "node.kubernetes.io/instance-type"};

// Refuses a job that does not fit in the memory of the GPUs that its config or the node selector
// names. If neither is known, compares with the largest known GPUs. Stores the prediction for known
// GPUs in the job.
absl::Status check_memory_plan(const RenderOptions& options, const K8sPlan& plan,
                               v1::JobSpec& spec) {
  if (plan.gpus == 0) return absl::OkStatus();
  std::optional<jobspec::Topology> gpus;
  const auto find = [&](const auto& topologies) {
    std::vector<std::string> names;
    for (const auto& [label, value] : plan.node_selector)
      if (std::ranges::find(kGpuLabels, label) != std::end(kGpuLabels)) names.push_back(value);
    return gpu_type_of_names(names, topologies, "by --node-selector", spec.nodes());
  };
  if (auto status = check_gpu_memory(options.job, spec, find, &gpus); !status.ok()) return status;
  if (gpus) predict(*gpus, known_calibrations(options.job), spec);
  return absl::OkStatus();
}

int render(const RenderOptions& given) {
  RenderOptions options = given;
  JobArguments& job = options.job;
  // Folders of this machine do not exist in the pods; relative paths start where ranks may write.
  if (job.working_directory.empty()) job.working_directory = "/var/lib/muster";
  if (!job.ranks && !job.ranks_per_node && options.plan.gpus > 0)
    job.ranks_per_node = options.plan.gpus;
  job.node_gpus = options.plan.gpus;
  const bool shows_own =
      std::any_of(job.environment.begin(), job.environment.end(),
                  [](const std::string& text) { return !absl::StrContains(text, "="); });
  if (shows_own)
    warn("the ConfigMap contains the values of --env: use --env-from-secret for secrets");
  auto spec = resolved(job);
  if (!spec.ok()) return fail(spec.status());
  auto plan = plan_of(options, *spec);
  if (!plan.ok()) return fail(plan.status());
  if (auto status = check_memory_plan(options, *plan, *spec); !status.ok()) return fail(status);
  if (spec->planned_memory_bytes() > 0) plan = plan_of(options, *spec);
  if (!plan.ok()) return fail(plan.status());
  const auto objects = k8s_objects(*plan);
  if (options.json) {
    const nlohmann::ordered_json list = {
        {"apiVersion", "v1"}, {"kind", "List"}, {"items", objects}};
    return print_result(list.dump(2) + "\n");
  }
  std::string text = "# By muster k8s render.\n";
  for (const auto& object : objects) absl::StrAppend(&text, "---\n", jobspec::to_yaml(object));
  return print_result(text);
}

void add_pod_options(CLI::App& command, RenderOptions& options) {
  K8sPlan& plan = options.plan;
  const auto add = [&](const char* name, std::string& value, const char* help, const char* type) {
    return command.add_option(name, value, help)->type_name(type);
  };
  add("--image", plan.image, "The image with Muster's programs and the ranks' software", "IMAGE")
      ->required();
  add("--bin-dir", plan.bin_dir, "The folder of Muster's programs in the image", "FOLDER")
      ->capture_default_str();
  add("--pull-secret", plan.pull_secret, "A Secret with the credentials to pull the image", "NAME");
  add("-n,--namespace", plan.namespace_name, "The objects' namespace (default: kubectl's)", "NAME");
  add("--k8s-name", plan.name, "The JobSet's name (default: the run's)", "NAME");
  daemon::add_count(command, "--gpus", plan.gpus,
                    "GPUs of each worker; also the default number of its ranks", 0, kPodDevicesMax);
  add("--gpu-resource", plan.gpu_resource, "The resource name of the GPUs", "NAME")
      ->capture_default_str();
  daemon::add_count(command, "--efa", plan.efa, "EFA interfaces of each worker: 32 on p5.48xlarge",
                    0, kPodDevicesMax);
  add("--huge-pages", plan.huge_pages, "Memory in huge pages of 2 MiB for each worker", "QUANTITY");
  add("--cpu", plan.cpu, "Processors of each worker", "QUANTITY")->capture_default_str();
  add("--memory", plan.memory, "Memory of each worker", "QUANTITY")->capture_default_str();
  add("--shared-memory", plan.shared_memory,
      "/dev/shm of each worker: NCCL's buffers, local checkpoints", "QUANTITY")
      ->capture_default_str();
  daemon::add_list(command, "--mount", options.mounts, "CLAIM:PATH",
                   "A volume mounted at PATH in the workers: a claim that all of them can mount "
                   "(ReadWriteMany), or a folder of the node; may be repeated");
  daemon::add_list(command, "--node-selector", options.node_selector, "LABEL=VALUE",
                   "A required label of the nodes; may be repeated");
  daemon::add_list(command, "--toleration", plan.tolerations, "KEY",
                   "A taint's key that workers tolerate; may be repeated");
  daemon::add_list(
      command, "--switches-from-node", plan.switches_from_node, "LABEL",
      "A node label that names a switch above the node, the outermost first: "
      "topology.k8s.aws/network-node-layer-1; may be repeated. Needs --service-account");
  add("--domain-from-node", plan.domain_from_node,
      "The node label that names the node's NVLink domain: nvidia.com/gpu.clique. Needs "
      "--switches-from-node",
      "LABEL");
  add("--service-account", plan.service_account,
      "The workers' ServiceAccount; --switches-from-node needs its right to get nodes", "NAME");
  daemon::add_list(
      command, "--env-from-secret", plan.environment_of, "NAME",
      "A Secret whose keys become environment variables of every rank and override those of --efa; "
      "may be repeated: the last Secret with a key wins, and --env overrides all");
  daemon::add_count(command, "--leave-seconds", plan.leave_seconds,
                    "Grace for ranks to save a checkpoint when their pod is evicted, in seconds", 1,
                    kPodLeaveSecondsMax)
      ->capture_default_str();
}

void add_cluster_options(CLI::App& command, K8sPlan& plan) {
  const auto add = [&](const char* name, std::string& value, const char* help, const char* type) {
    command.add_option(name, value, help)->type_name(type);
  };
  add("--queue", plan.queue, "Kueue's LocalQueue: the job waits until all of its pods can run",
      "NAME");
  add("--priority-class", plan.priority_class, "Kueue's WorkloadPriorityClass", "NAME");
  add("--topology", plan.topology,
      "A label of nodes by which Kueue keeps the workers together: "
      "topology.k8s.aws/network-node-layer-2",
      "LABEL");
  add("--tls-secret", plan.tls_secret, "A Secret with tls.crt, tls.key and ca.crt", "NAME");
  add("--token-secret", plan.token_secret, "A Secret with a token for each role", "NAME");
  command.add_flag("--insecure", plan.insecure,
                   "No TLS and no tokens; only a NetworkPolicy protects the coordinator");
}

}  // namespace

void declare_k8s_render(CLI::App& k8s, Action& action) {
  auto options = std::make_shared<RenderOptions>();
  options->job.own_workers = true;
  options->job.is_for_plan = true;
  CLI::App* command =
      k8s.add_subcommand("render", "Print a job as a JobSet, for kubectl apply and for Kueue");
  command->group("Commands");
  add_config_arguments(*command, options->job, true);
  add_rank_options(*command, options->job);
  add_recovery_options(*command, options->job);
  add_program_options(*command, options->job);
  add_working_directory_option(*command, options->job);
  add_pod_options(*command, *options);
  add_cluster_options(*command, options->plan);
  add_no_plan_option(*command, options->job);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster k8s render --nodes 4 --gpus 8 --image registry.example/muster:1 --mount "
      "shared:/shared "
      "--insecure \\\n"
      "      configs/base.yml model_name=llama2-7b run_name=first base_output_directory=/shared | "
      "kubectl apply --server-side -f -\n"
      "  muster k8s render --nodes 2 --gpus 8 --efa 32 --queue team-a --image … --mount fsx:/fsx "
      "--tls-secret muster-tls \\\n"
      "      --token-secret muster-tokens --working-directory /fsx/me -- python3 train.py --lr "
      "1e-3\n"
      "\nThe job is resolved here; data and checkpoints are checked when its ranks start. Nothing "
      "is sent anywhere. The cluster needs JobSet 0.8\n"
      "or newer and Kubernetes 1.29. The JobSet ends as the job does; kubectl logs -f "
      "job/NAME-leader-0 "
      "-c muster shows it.");
  on_call(*command, action, options, render);
}

}  // namespace muster::cli
