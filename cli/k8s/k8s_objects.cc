#include "cli/k8s/k8s_objects.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/process/exit_code.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kApiPort = 7070, kCoordinatorPages = 7071, kWorkerPages = 7072;
// The image's user, the same as in helm/muster.
constexpr int kUser = 64000;
// Replacements of pods that were lost for reasons outside the job. The coordinator judges their
// nodes; the leader's end ends the job.
constexpr int kWorkersReplacedMax = 1000;
constexpr int kLeadersReplacedMax = 3;
constexpr char kSwitchesFolder[] = "/run/muster";
constexpr char kSwitchesFile[] = "/run/muster/switches";
constexpr char kAccountFolder[] = "/var/run/secrets/kubernetes.io/serviceaccount";
// Time for the worker to reap and report ranks that have used up their grace.
constexpr int kReapSeconds = 30;

std::string api_address(const K8sPlan& plan) {
  return absl::StrCat(plan.name, "-leader-0-0.", plan.name, ":", kApiPort);
}

Json own_labels(const K8sPlan& plan) {
  return {{"app.kubernetes.io/name", "muster"}, {"app.kubernetes.io/instance", plan.name}};
}

Json metadata(const K8sPlan& plan, const std::string& name) {
  Json metadata = {{"name", name}};
  if (!plan.namespace_name.empty()) metadata["namespace"] = plan.namespace_name;
  metadata["labels"] = own_labels(plan);
  return metadata;
}

std::string efa_map_name(const K8sPlan& plan) { return plan.name + "-efa"; }

Json job_map(const K8sPlan& plan) {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", metadata(plan, plan.name + "-job")},
          {"data", {{"job.json", plan.job_file}}}};
}

// Variables of NCCL and libfabric, as in helm/muster/values-eks-p5.yaml (see docs/kubernetes.md).
// Not in the container's `env`, which would override the user's Secrets; the last `envFrom` wins.
Json efa_map(const K8sPlan& plan) {
  Json variables = {{"FI_PROVIDER", "efa"},
                    {"NCCL_SOCKET_IFNAME", "eth0"},
                    {"NCCL_DEBUG", "INFO"},
                    {"NCCL_DEBUG_SUBSYS", "INIT,NET"}};
  if (plan.huge_pages.empty()) variables["FI_EFA_USE_HUGE_PAGE"] = "0";
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", metadata(plan, efa_map_name(plan))},
          {"data", variables}};
}

// Restricts ingress to pods of the JobSet: ranks connect to each other without encryption, also
// with TLS.
Json policy(const K8sPlan& plan) {
  const Json own = {{"matchLabels", {{"jobset.sigs.k8s.io/jobset-name", plan.name}}}};
  return {{"apiVersion", "networking.k8s.io/v1"},
          {"kind", "NetworkPolicy"},
          {"metadata", metadata(plan, plan.name)},
          {"spec",
           {{"podSelector", own},
            {"policyTypes", {"Ingress"}},
            {"ingress", Json::array({{{"from", Json::array({{{"podSelector", own}}})}}})}}}};
}

Json probe(const char* path, int port, int period_seconds, int failures) {
  return {{"httpGet", {{"path", path}, {"port", port}}},
          {"periodSeconds", period_seconds},
          {"failureThreshold", failures}};
}

Json container_security() {
  return {{"allowPrivilegeEscalation", false}, {"capabilities", {{"drop", {"ALL"}}}}};
}

Json mount(const char* name, const std::string& path, bool read_only) {
  Json mount = {{"name", name}, {"mountPath", path}};
  if (read_only) mount["readOnly"] = true;
  return mount;
}

// Keys of a Secret as files.
Json secret(const char* name, const std::string& secret, const std::vector<std::string>& keys) {
  Json items = Json::array();
  for (const std::string& key : keys) items.push_back({{"key", key}, {"path", key}});
  return {{"name", name},
          {"secret", {{"secretName", secret}, {"defaultMode", 0440}, {"items", items}}}};
}

Json empty_folder(const char* name) { return {{"name", name}, {"emptyDir", Json::object()}}; }

Json pod_spec(const K8sPlan& plan, int grace_seconds) {
  Json spec = {{"restartPolicy", "Never"},
               {"automountServiceAccountToken", false},
               {"enableServiceLinks", false},
               {"terminationGracePeriodSeconds", grace_seconds},
               {"securityContext",
                {{"runAsNonRoot", true},
                 {"runAsUser", kUser},
                 {"runAsGroup", kUser},
                 {"fsGroup", kUser},
                 {"fsGroupChangePolicy", "OnRootMismatch"},
                 {"seccompProfile", {{"type", "RuntimeDefault"}}}}}};
  if (!plan.pull_secret.empty())
    spec["imagePullSecrets"] = Json::array({{{"name", plan.pull_secret}}});
  return spec;
}

// Mounts for the leader's pod.
void add_trust_mounts(Json& mounts) {
  mounts.push_back(mount("tls", "/etc/muster/tls", true));
  mounts.push_back(mount("tokens", "/etc/muster/tokens", true));
}

void add_mounts(const K8sPlan& plan, Json& mounts, Json& volumes) {
  for (size_t i = 0; i < plan.mounts.size(); ++i) {
    const K8sMount& given = plan.mounts[i];
    const std::string name = absl::StrCat("mount-", i);
    mounts.push_back(mount(name.c_str(), given.path, false));
    if (absl::StartsWith(given.source, "/")) {
      volumes.push_back(
          {{"name", name}, {"hostPath", {{"path", given.source}, {"type", "Directory"}}}});
    } else {
      volumes.push_back({{"name", name}, {"persistentVolumeClaim", {{"claimName", given.source}}}});
    }
  }
}

// A sidecar: it is ready before the job is submitted, and ends after it.
Json coordinator(const K8sPlan& plan) {
  Json args = {absl::StrCat("--listen=0.0.0.0:", kApiPort),
               absl::StrCat("--http=0.0.0.0:", kCoordinatorPages),
               "--state-dir=/var/lib/muster/state", "--log-format=json"};
  Json mounts =
      Json::array({mount("state", "/var/lib/muster", false), mount("tmp", "/tmp", false)});
  if (plan.has_tls()) {
    for (const char* flag : {"--trusted-network", "--tls-cert=/etc/muster/tls/tls.crt",
                             "--tls-key=/etc/muster/tls/tls.key", "--token-dir=/etc/muster/tokens"})
      args.push_back(flag);
    add_trust_mounts(mounts);
  } else {
    args.push_back("--insecure");
  }
  Json security = container_security();
  security["readOnlyRootFilesystem"] = true;
  return {{"name", "coordinator"},
          {"image", plan.image},
          {"restartPolicy", "Always"},
          {"command", {plan.bin_dir + "/muster-coordinator"}},
          {"args", args},
          {"ports",
           {{{"name", "grpc"}, {"containerPort", kApiPort}},
            {{"name", "http"}, {"containerPort", kCoordinatorPages}}}},
          {"startupProbe", probe("/readyz", kCoordinatorPages, 1, 120)},
          {"livenessProbe", probe("/healthz", kCoordinatorPages, 10, 6)},
          {"resources",
           {{"requests", {{"cpu", "500m"}, {"memory", "256Mi"}}}, {"limits", {{"memory", "2Gi"}}}}},
          {"securityContext", security},
          {"volumeMounts", mounts}};
}

Json submitter(const K8sPlan& plan) {
  Json env = Json::array(
      {{{"name", "MUSTER_COORDINATOR"}, {"value", absl::StrCat("127.0.0.1:", kApiPort)}}});
  Json mounts = Json::array({mount("job", "/etc/muster/job", true), mount("tmp", "/tmp", false)});
  if (plan.has_tls()) {
    env.push_back({{"name", "MUSTER_TLS_CA"}, {"value", "/etc/muster/tls/ca.crt"}});
    env.push_back({{"name", "MUSTER_TOKEN_FILE"}, {"value", "/etc/muster/tokens/submitter"}});
    add_trust_mounts(mounts);
  }
  Json security = container_security();
  security["readOnlyRootFilesystem"] = true;
  return {{"name", "muster"},
          {"image", plan.image},
          {"command", {plan.bin_dir + "/muster"}},
          {"args", {"submit", "--follow", "--job-file=/etc/muster/job/job.json"}},
          {"env", env},
          {"resources",
           {{"requests", {{"cpu", "100m"}, {"memory", "64Mi"}}}, {"limits", {{"memory", "1Gi"}}}}},
          {"securityContext", security},
          {"volumeMounts", mounts}};
}

// A pod that Kubernetes evicts is no failure; the exit code of `muster submit` ends the Job.
Json leader_job(const K8sPlan& plan) {
  Json spec = pod_spec(plan, kReapSeconds);
  spec["initContainers"] = Json::array({coordinator(plan)});
  spec["containers"] = Json::array({submitter(plan)});
  spec["volumes"] = {empty_folder("state"),
                     empty_folder("tmp"),
                     {{"name", "job"}, {"configMap", {{"name", plan.name + "-job"}}}}};
  if (plan.has_tls()) {
    spec["volumes"].push_back(secret("tls", plan.tls_secret, {"tls.crt", "tls.key", "ca.crt"}));
    spec["volumes"].push_back(
        {{"name", "tokens"},
         {"secret", {{"secretName", plan.token_secret}, {"defaultMode", 0440}}}});
  }
  Json labels = own_labels(plan);
  labels["app.kubernetes.io/component"] = "leader";
  const Json rules = {
      {{"action", "Ignore"},
       {"onPodConditions", Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}})}},
      {{"action", "FailJob"},
       {"onExitCodes",
        {{"containerName", "muster"},
         {"operator", "NotIn"},
         // Stopped or killed: the pod was evicted.
         {"values", {to_int(ExitCode::kInterrupted), 137, 143}}}}}};
  return {{"parallelism", 1},
          {"completions", 1},
          {"backoffLimit", kLeadersReplacedMax},
          {"podReplacementPolicy", "Failed"},
          {"podFailurePolicy", {{"rules", rules}}},
          {"template", {{"metadata", {{"labels", labels}}}, {"spec", spec}}}};
}

Json worker_resources(const K8sPlan& plan) {
  Json devices = Json::object();
  if (plan.gpus > 0) devices[plan.gpu_resource] = plan.gpus;
  if (plan.efa > 0) devices[kEfaResource] = plan.efa;
  if (!plan.huge_pages.empty()) devices["hugepages-2Mi"] = plan.huge_pages;
  Json requests = {{"cpu", plan.cpu}, {"memory", plan.memory}};
  requests.update(devices);
  Json resources = {{"requests", requests}};
  if (!devices.empty()) resources["limits"] = devices;
  return resources;
}

Json field(const char* variable, const char* path) {
  return {{"name", variable}, {"valueFrom", {{"fieldRef", {{"fieldPath", path}}}}}};
}

// Reads the node's labels before the worker starts. Ranks do not have this container's token.
Json switches_reader(const K8sPlan& plan) {
  Json args = {"k8s", "switches", "--node=$(NODE)"};
  for (const std::string& label : plan.switches_from_node) args.push_back("--label=" + label);
  if (!plan.domain_from_node.empty()) args.push_back("--domain-label=" + plan.domain_from_node);
  args.push_back(std::string("--output=") + kSwitchesFile);
  args.push_back(std::string("--account=") + kAccountFolder);
  Json security = container_security();
  security["readOnlyRootFilesystem"] = true;
  return {{"name", "switches"},
          {"image", plan.image},
          {"command", {plan.bin_dir + "/muster"}},
          {"args", args},
          {"env", Json::array({field("NODE", "spec.nodeName")})},
          {"resources",
           {{"requests", {{"cpu", "10m"}, {"memory", "64Mi"}}}, {"limits", {{"memory", "256Mi"}}}}},
          {"securityContext", security},
          {"volumeMounts", Json::array({mount("switches", kSwitchesFolder, false),
                                        mount("account", kAccountFolder, true)})}};
}

// The volume that Kubernetes would mount into all containers of the pod.
Json account_volume() {
  const Json authority = {{"key", "ca.crt"}, {"path", "ca.crt"}};
  const Json sources = Json::array(
      {{{"serviceAccountToken", {{"path", "token"}, {"expirationSeconds", 3600}}}},
       {{"configMap", {{"name", "kube-root-ca.crt"}, {"items", Json::array({authority})}}}}});
  return {{"name", "account"}, {"projected", {{"defaultMode", 0440}, {"sources", sources}}}};
}

Json worker(const K8sPlan& plan, Json mounts) {
  Json args = {
      "--coordinator=" + api_address(plan), "--pass-env=*",
      // A replacement pod is the same worker.
      "--name=worker-$(MUSTER_WORKER_INDEX)", absl::StrCat("--slots=", plan.slots),
      "--rendezvous=$(MUSTER_WORKER_ADDRESS):0", absl::StrCat("--http=0.0.0.0:", kWorkerPages),
      "--work-dir=/var/lib/muster/work", absl::StrCat("--leave-grace=", plan.leave_seconds),
      // A container that exits with 0 is not restarted, but a worker that leaves needs a successor.
      absl::StrCat("--leave-exit-code=", to_int(ExitCode::kPreempted)), "--log-format=json"};
  if (plan.has_tls()) {
    for (const char* flag : {"--trusted-network", "--tls-ca=/etc/muster/ca/ca.crt",
                             "--token-file=/etc/muster/token/worker"})
      args.push_back(flag);
    mounts.push_back(mount("ca", "/etc/muster/ca", true));
    mounts.push_back(mount("token", "/etc/muster/token", true));
  } else {
    args.push_back("--insecure");
  }
  Json env = Json::array(
      {field("MUSTER_WORKER_INDEX", "metadata.labels['batch.kubernetes.io/job-completion-index']"),
       field("MUSTER_WORKER_ADDRESS", "status.podIP")});
  if (plan.switches_from_node.empty()) {
    // The node's zone; pods have this label from Kubernetes 1.35 on, before that it is empty.
    env.push_back(
        field("MUSTER_WORKER_SWITCHES", "metadata.labels['topology.kubernetes.io/zone']"));
  } else {
    args.push_back(std::string("--switches-file=") + kSwitchesFile);
    mounts.push_back(mount("switches", kSwitchesFolder, true));
  }
  Json container = {{"name", "worker"},
                    {"image", plan.image},
                    {"command", {plan.bin_dir + "/muster-worker"}},
                    {"args", args},
                    {"env", env},
                    {"ports", Json::array({{{"name", "http"}, {"containerPort", kWorkerPages}}})},
                    {"startupProbe", probe("/healthz", kWorkerPages, 2, 90)},
                    {"livenessProbe", probe("/healthz", kWorkerPages, 10, 6)},
                    {"resources", worker_resources(plan)},
                    {"securityContext", container_security()},
                    {"volumeMounts", mounts}};
  if (plan.efa > 0)
    container["envFrom"].push_back({{"configMapRef", {{"name", efa_map_name(plan)}}}});
  for (const std::string& secret : plan.environment_of)
    container["envFrom"].push_back({{"secretRef", {{"name", secret}}}});
  return container;
}

Json workers_job(const K8sPlan& plan) {
  Json mounts = {mount("work", "/var/lib/muster", false), mount("shm", "/dev/shm", false)};
  Json volumes = {
      empty_folder("work"),
      {{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", plan.shared_memory}}}}};
  add_mounts(plan, mounts, volumes);
  if (plan.has_tls()) {
    volumes.push_back(secret("ca", plan.tls_secret, {"ca.crt"}));
    volumes.push_back(secret("token", plan.token_secret, {"worker"}));
  }
  Json spec = pod_spec(plan, plan.leave_seconds + kReapSeconds);
  if (!plan.service_account.empty()) spec["serviceAccountName"] = plan.service_account;
  if (!plan.switches_from_node.empty()) {
    spec["initContainers"] = Json::array({switches_reader(plan)});
    volumes.push_back(empty_folder("switches"));
    volumes.push_back(account_volume());
  }
  for (const auto& [key, value] : plan.node_selector) spec["nodeSelector"][key] = value;
  for (const std::string& key : plan.tolerations)
    spec["tolerations"].push_back({{"key", key}, {"operator", "Exists"}});
  spec["containers"] = Json::array({worker(plan, mounts)});
  spec["volumes"] = volumes;
  Json labels = own_labels(plan);
  labels["app.kubernetes.io/component"] = "worker";
  Json metadata = {{"labels", labels}};
  if (!plan.topology.empty())
    metadata["annotations"] = {{"kueue.x-k8s.io/podset-preferred-topology", plan.topology}};
  const auto on_exit = [](const char* action, ExitCode code) {
    return Json{{"action", action},
                {"onExitCodes",
                 {{"containerName", "worker"}, {"operator", "In"}, {"values", {to_int(code)}}}}};
  };
  const Json rules = {
      {{"action", "Ignore"},
       {"onPodConditions", Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}})}},
      on_exit("Ignore", ExitCode::kPreempted),
      on_exit("FailJob", ExitCode::kBadInput)};
  return {{"parallelism", plan.workers},
          {"completions", plan.workers},
          {"completionMode", "Indexed"},
          {"backoffLimit", kWorkersReplacedMax},
          {"podReplacementPolicy", "Failed"},
          {"podFailurePolicy", {{"rules", rules}}},
          {"template", {{"metadata", metadata}, {"spec", spec}}}};
}

Json job_set(const K8sPlan& plan) {
  Json described = metadata(plan, plan.name);
  if (!plan.queue.empty()) described["labels"]["kueue.x-k8s.io/queue-name"] = plan.queue;
  if (!plan.priority_class.empty())
    described["labels"]["kueue.x-k8s.io/priority-class"] = plan.priority_class;
  const auto replicated = [&](const char* name, Json job) {
    // `muster status --why` finds the Jobs by these labels.
    return Json{
        {"name", name},
        {"replicas", 1},
        {"template", {{"metadata", {{"labels", own_labels(plan)}}}, {"spec", std::move(job)}}}};
  };
  return {{"apiVersion", "jobset.x-k8s.io/v1alpha2"},
          {"kind", "JobSet"},
          {"metadata", described},
          {"spec",
           {// Workers resolve the coordinator's address before it is ready.
            {"network", {{"enableDNSHostnames", true}, {"publishNotReadyAddresses", true}}},
            // The leader's end is the job's; workers never end by themselves.
            {"successPolicy", {{"operator", "All"}, {"targetReplicatedJobs", {"leader"}}}},
            {"failurePolicy", {{"maxRestarts", 0}}},
            {"replicatedJobs",
             {replicated("leader", leader_job(plan)), replicated("workers", workers_job(plan))}}}}};
}

}  // namespace

std::vector<nlohmann::ordered_json> k8s_objects(const K8sPlan& plan) {
  std::vector<Json> objects = {job_map(plan), policy(plan), job_set(plan)};
  if (plan.efa > 0) objects.insert(objects.begin() + 1, efa_map(plan));
  return objects;
}

}  // namespace muster::cli
