#include "cli/k8s/k8s_objects.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

K8sPlan plan() {
  return {.name = "first",
          .image = "registry.example/muster:1",
          .job_file = "{}",
          .workers = 5,
          .slots = 8,
          .gpus = 8,
          .mounts = {{"shared", "/shared"}, {"/mnt/nvme", "/scratch"}},
          .insecure = true};
}

Json job_set(const K8sPlan& plan) { return k8s_objects(plan).back(); }

const Json& job_of(const Json& set, const std::string& name) {
  for (const Json& job : set["spec"]["replicatedJobs"])
    if (job["name"] == name) return job["template"]["spec"];
  throw std::runtime_error(name);
}

const Json& pod_of(const Json& set, const std::string& name) {
  return job_of(set, name)["template"]["spec"];
}

bool has(const Json& list, const Json& wanted) {
  return std::find(list.begin(), list.end(), wanted) != list.end();
}

TEST(K8sObjects, AreAJobItsNetworkAndItsPods) {
  const auto objects = k8s_objects(plan());
  ASSERT_EQ(objects.size(), 3);
  EXPECT_EQ(objects[0]["kind"], "ConfigMap");
  EXPECT_EQ(objects[0]["data"]["job.json"], "{}");
  EXPECT_EQ(objects[1]["kind"], "NetworkPolicy");
  EXPECT_EQ(objects[1]["spec"]["podSelector"]["matchLabels"]["jobset.sigs.k8s.io/jobset-name"],
            "first");
  EXPECT_EQ(objects[2]["kind"], "JobSet");
  for (const Json& object : objects) EXPECT_FALSE(object["metadata"].contains("namespace"));
  K8sPlan elsewhere = plan();
  elsewhere.namespace_name = "training";
  for (const Json& object : k8s_objects(elsewhere))
    EXPECT_EQ(object["metadata"]["namespace"], "training");
}

TEST(K8sObjects, JobsAreFoundByTheirLabelsAsPodsAre) {
  const Json set = job_set(plan());
  for (const Json& job : set["spec"]["replicatedJobs"]) {
    const Json& labels = job["template"]["metadata"]["labels"];
    EXPECT_EQ(labels["app.kubernetes.io/name"], "muster");
    EXPECT_EQ(labels["app.kubernetes.io/instance"], "first");
  }
}

TEST(K8sObjects, TheLeadersEndIsTheJobs) {
  const Json set = job_set(plan());
  EXPECT_EQ(set["spec"]["successPolicy"]["targetReplicatedJobs"], Json({"leader"}));
  EXPECT_EQ(set["spec"]["failurePolicy"]["maxRestarts"], 0);
  const Json& leader = pod_of(set, "leader");
  // A sidecar ends after the container that submits and follows.
  EXPECT_EQ(leader["initContainers"][0]["restartPolicy"], "Always");
  EXPECT_EQ(leader["initContainers"][0]["command"][0], "/opt/muster/bin/muster-coordinator");
  EXPECT_TRUE(has(leader["containers"][0]["args"], "--follow"));
  const Json& rules = job_of(set, "leader")["podFailurePolicy"]["rules"];
  EXPECT_EQ(rules[0]["action"], "Ignore");
  // All other codes fail the job, also that of a job whose restarts made no progress (6).
  EXPECT_EQ(rules[1]["action"], "FailJob");
  EXPECT_EQ(rules[1]["onExitCodes"]["operator"], "NotIn");
  EXPECT_EQ(rules[1]["onExitCodes"]["values"], Json({130, 137, 143}));
}

TEST(K8sObjects, AnEvictedWorkerIsReplaced) {
  const Json set = job_set(plan());
  const Json& job = job_of(set, "workers");
  EXPECT_EQ(job["completionMode"], "Indexed");
  EXPECT_EQ(job["parallelism"], 5);
  EXPECT_EQ(job["completions"], 5);
  const Json& worker = job["template"]["spec"]["containers"][0];
  EXPECT_TRUE(has(worker["args"], "--leave-exit-code=75"));
  EXPECT_TRUE(has(worker["args"], "--coordinator=first-leader-0-0.first:7070"));
  EXPECT_TRUE(has(worker["args"], "--name=worker-$(MUSTER_WORKER_INDEX)"));
  EXPECT_EQ(job["podFailurePolicy"]["rules"][1]["action"], "Ignore");
  EXPECT_EQ(job["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"], Json({75}));
  EXPECT_EQ(job["template"]["spec"]["terminationGracePeriodSeconds"], 630);
}

TEST(K8sObjects, AWorkerGetsTheZoneOfItsNode) {
  const Json set = job_set(plan());
  const Json& env = pod_of(set, "workers")["containers"][0]["env"];
  EXPECT_TRUE(has(env, Json::parse(R"({"name": "MUSTER_WORKER_SWITCHES", "valueFrom": {"fieldRef":
      {"fieldPath": "metadata.labels['topology.kubernetes.io/zone']"}}})")));
}

TEST(K8sObjects, OnlyTheSwitchesContainerHasTheToken) {
  K8sPlan wanted = plan();
  wanted.switches_from_node = {"example.com/spine", "example.com/leaf"};
  wanted.domain_from_node = "nvidia.com/gpu.clique";
  wanted.service_account = "topology";
  const Json set = job_set(wanted);
  const Json& pod = pod_of(set, "workers");
  EXPECT_EQ(pod["serviceAccountName"], "topology");
  EXPECT_EQ(pod["automountServiceAccountToken"], false);
  const Json& reader = pod["initContainers"][0];
  EXPECT_EQ(reader["args"][3], "--label=example.com/spine");
  EXPECT_EQ(reader["args"][4], "--label=example.com/leaf");
  EXPECT_TRUE(has(reader["args"], "--domain-label=nvidia.com/gpu.clique"));
  EXPECT_TRUE(has(reader["args"], "--output=/run/muster/switches"));
  const Json& worker = pod["containers"][0];
  EXPECT_TRUE(has(worker["args"], "--switches-file=/run/muster/switches"));
  EXPECT_THAT(worker["env"].dump(), testing::Not(HasSubstr("MUSTER_WORKER_SWITCHES")));
  EXPECT_THAT(reader["volumeMounts"].dump(), HasSubstr("\"account\""));
  EXPECT_THAT(worker["volumeMounts"].dump(), testing::Not(HasSubstr("\"account\"")));
  EXPECT_FALSE(pod_of(set, "leader").contains("serviceAccountName"));
}

TEST(K8sObjects, DevicesAreRequestsAndLimits) {
  K8sPlan wanted = plan();
  wanted.efa = 32;
  wanted.huge_pages = "5120Mi";
  const Json set = job_set(wanted);
  const Json& resources = pod_of(set, "workers")["containers"][0]["resources"];
  for (const char* kind : {"requests", "limits"}) {
    EXPECT_EQ(resources[kind]["nvidia.com/gpu"], 8);
    EXPECT_EQ(resources[kind]["vpc.amazonaws.com/efa"], 32);
    EXPECT_EQ(resources[kind]["hugepages-2Mi"], "5120Mi");
  }
  wanted.gpus = wanted.efa = 0;
  wanted.huge_pages.clear();
  EXPECT_FALSE(pod_of(job_set(wanted), "workers")["containers"][0]["resources"].contains("limits"));
}

TEST(K8sObjects, TheUsersSecretsOverrideEfasVariables) {
  K8sPlan wanted = plan();
  wanted.efa = 32;
  wanted.environment_of = {"wandb", "nccl"};
  const auto objects = k8s_objects(wanted);
  ASSERT_EQ(objects.size(), 4);
  EXPECT_EQ(objects[1]["kind"], "ConfigMap");
  EXPECT_EQ(objects[1]["metadata"]["name"], "first-efa");
  EXPECT_EQ(objects[1]["data"]["NCCL_DEBUG"], "INFO");
  const Json& worker = pod_of(objects.back(), "workers")["containers"][0];
  // In Kubernetes `env` overrides `envFrom`, and the last `envFrom` wins.
  for (const Json& entry : worker["env"])
    EXPECT_FALSE(objects[1]["data"].contains(entry["name"].get<std::string>())) << entry;
  EXPECT_EQ(worker["envFrom"], Json::parse(R"([{"configMapRef": {"name": "first-efa"}},
      {"secretRef": {"name": "wandb"}}, {"secretRef": {"name": "nccl"}}])"));
  wanted.efa = 0;
  EXPECT_EQ(k8s_objects(wanted).size(), 3);
}

TEST(K8sObjects, ClaimsAndFoldersAreMounted) {
  const Json set = job_set(plan());
  const Json& pod = pod_of(set, "workers");
  EXPECT_TRUE(has(pod["volumes"],
                  {{"name", "mount-0"}, {"persistentVolumeClaim", {{"claimName", "shared"}}}}));
  EXPECT_EQ(pod["volumes"][3]["hostPath"]["path"], "/mnt/nvme");
  EXPECT_TRUE(
      has(pod["containers"][0]["volumeMounts"], {{"name", "mount-1"}, {"mountPath", "/scratch"}}));
}

TEST(K8sObjects, KueuesOptionsAreLabels) {
  K8sPlan wanted = plan();
  EXPECT_FALSE(job_set(wanted)["metadata"]["labels"].contains("kueue.x-k8s.io/queue-name"));
  wanted.queue = "team-a";
  wanted.priority_class = "high";
  wanted.topology = "topology.k8s.aws/network-node-layer-2";
  const Json set = job_set(wanted);
  EXPECT_EQ(set["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team-a");
  EXPECT_EQ(set["metadata"]["labels"]["kueue.x-k8s.io/priority-class"], "high");
  EXPECT_EQ(job_of(set, "workers")["template"]["metadata"]["annotations"]
                                  ["kueue.x-k8s.io/podset-preferred-topology"],
            "topology.k8s.aws/network-node-layer-2");
}

TEST(K8sObjects, WithTlsAWorkerHasOnlyItsOwnToken) {
  K8sPlan wanted = plan();
  wanted.insecure = false;
  wanted.tls_secret = "tls";
  wanted.token_secret = "tokens";
  const Json set = job_set(wanted);
  for (const char* name : {"leader", "workers"}) {
    EXPECT_THAT(pod_of(set, name).dump(), testing::Not(HasSubstr("--insecure"))) << name;
  }
  Json keys;
  for (const Json& volume : pod_of(set, "workers")["volumes"])
    if (volume.contains("secret"))
      for (const Json& item : volume["secret"]["items"]) keys.push_back(item["key"]);
  EXPECT_EQ(keys, Json({"ca.crt", "worker"}));
}

TEST(K8sPlan, ErrorsNameTheOption) {
  const auto refusal = [](void (*change)(K8sPlan&)) {
    K8sPlan wrong = plan();
    change(wrong);
    return std::string(check_k8s_plan(wrong).message());
  };
  EXPECT_TRUE(check_k8s_plan(plan()).ok()) << check_k8s_plan(plan());
  EXPECT_THAT(refusal([](K8sPlan& p) { p.name = "First_1"; }), HasSubstr("--k8s-name First_1"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.name = "1st"; }), HasSubstr("begins with a letter"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.name = std::string(41, 'a'); }), HasSubstr("at most 40"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.image = ""; }), HasSubstr("--image"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.memory = "much"; }), HasSubstr("--memory much"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.slots = 9; }), HasSubstr("give --gpus 9"));
  EXPECT_THAT(refusal([](K8sPlan& p) {
                p.mounts.push_back({"b", "/shared"});
              }),
              HasSubstr("two mounts"));
  EXPECT_THAT(refusal([](K8sPlan& p) {
                p.mounts.push_back({"b", "/dev/shm"});
              }),
              HasSubstr("the worker's pod uses this path itself"));
  EXPECT_THAT(refusal([](K8sPlan& p) {
                p.mounts.push_back({"b", "/etc/muster/ca/x"});
              }),
              HasSubstr("--mount /etc/muster/ca/x: the worker's pod uses this path itself"));
  EXPECT_THAT(refusal([](K8sPlan& p) {
                p.mounts.push_back({"b", "/opt"});
              }),
              HasSubstr("--mount /opt: it would hide the programs in /opt/muster/bin"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.tolerations = {"bad key!"}; }),
              HasSubstr("--toleration bad key!: must have the form of topology"));
  EXPECT_THAT(refusal([](K8sPlan& p) {
                p.node_selector = {{"a b", "c"}};
              }),
              HasSubstr("--node-selector a b: must have the form of topology"));
  EXPECT_THAT(refusal([](K8sPlan& p) {
                p.node_selector = {{"example.com/a", "c d"}};
              }),
              HasSubstr("--node-selector example.com/a=c d: a label's value"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.gpu_resource = "nvidia gpu"; }),
              HasSubstr("--gpu-resource nvidia gpu"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.gpu_resource = "gpu"; }), HasSubstr("with its domain"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.gpu_resource = kEfaResource; }),
              HasSubstr("--gpu-resource vpc.amazonaws.com/efa: not a GPU"));
  EXPECT_THAT(refusal([](K8sPlan& p) {
                p.efa = 4;
                p.node_selector.clear();
              }),
              HasSubstr("--efa 4) without selecting nodes: give --node-selector"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.shared_memory = "2000Gi"; }),
              HasSubstr("counts as the container's memory"));
  EXPECT_THAT(refusal([](K8sPlan& p) {
                p.service_account = "a";
                p.switches_from_node = std::vector<std::string>(9, "leaf");
              }),
              HasSubstr("--switches-from-node: at most 8 labels are allowed, not 9"));
  EXPECT_THAT(refusal([](K8sPlan& p) {
                p.service_account = "a";
                p.switches_from_node = {"spine", "leaf", "spine"};
              }),
              HasSubstr("--switches-from-node spine: given twice"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.domain_from_node = "clique"; }),
              HasSubstr("give --switches-from-node"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.domain_from_node = "a b"; }),
              HasSubstr("--domain-from-node a b"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.switches_from_node = {"a b"}; }),
              HasSubstr("--switches-from-node a b"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.switches_from_node = {"leaf"}; }),
              HasSubstr("give --service-account"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.service_account = "A"; }),
              HasSubstr("--service-account A"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.bin_dir = "bin"; }),
              HasSubstr("--bin-dir bin: must be an absolute path"));
  EXPECT_THAT(refusal([](K8sPlan& p) {
                p.queue = "a";
                p.topology = "bad label!";
              }),
              HasSubstr("--topology bad label!"));
  K8sPlan right = plan();
  right.node_selector = {{"node.kubernetes.io/instance-type", "p5.48xlarge"}, {"spot", ""}};
  right.tolerations = {"nvidia.com/gpu", "team_A"};
  right.gpu_resource = "nvidia.com/mig-1g.5gb";
  EXPECT_TRUE(check_k8s_plan(right).ok()) << check_k8s_plan(right);
  EXPECT_THAT(refusal([](K8sPlan& p) { p.priority_class = "high"; }), HasSubstr("give --queue"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.topology = "zone"; }), HasSubstr("give --queue"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.queue = "Team A"; }), HasSubstr("--queue Team A"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.job_file.resize(kJobFileBytesMax + 1); }),
              HasSubstr("a ConfigMap holds at most"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.insecure = false; }),
              HasSubstr("deploy/make-secrets.sh --coordinator first-leader-0-0.first --tls "
                        "first-tls --tokens first-tokens creates them"));
  EXPECT_THAT(refusal([](K8sPlan& p) {
                p.insecure = false;
                p.namespace_name = "training";
              }),
              HasSubstr("deploy/make-secrets.sh -n training --coordinator"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.tls_secret = "a"; }), HasSubstr("without --token-secret"));
  EXPECT_THAT(refusal([](K8sPlan& p) { p.tls_secret = p.token_secret = "a"; }),
              HasSubstr("omit one of them"));
}

TEST(K8sPlan, RunNamesBecomeKubernetesNames) {
  EXPECT_EQ(k8s_name("First run_2"), "first-run-2");
  EXPECT_EQ(k8s_name("2026-llama"), "llama");
  EXPECT_EQ(k8s_name("a."), "a");
  EXPECT_EQ(k8s_name("..."), "");
  EXPECT_EQ(k8s_name(std::string(39, 'a') + "_b"), std::string(39, 'a'));
}

TEST(K8sPlan, MountsHaveASourceAndAPath) {
  EXPECT_EQ(parse_k8s_mount("shared:/data")->source, "shared");
  EXPECT_EQ(parse_k8s_mount("/mnt/x:/data/")->path, "/data");
  EXPECT_EQ(parse_k8s_mount("/mnt/x:/dev//./shm/")->path, "/dev/shm");
  for (const char* wrong : {"", "shared", "shared:", "shared:data", ":/data", "Shared:/data",
                            "shared:/", "shared:/a/..", "shared:/a:ro"})
    EXPECT_FALSE(parse_k8s_mount(wrong).ok()) << wrong;
}

TEST(K8sPlan, QuantitiesHaveKubernetesForm) {
  for (const char* right : {"1", "500m", "1.5", "64Gi", "2k", "1n", "1E", "1e3"})
    EXPECT_TRUE(quantity(right)) << right;
  for (const char* wrong :
       {"", "m", "1.", ".5", "-1", "64GB", "1 Gi", "1e3x", "1e", "1e+", "1e3k", "1e999"})
    EXPECT_FALSE(quantity(wrong)) << wrong;
  EXPECT_EQ(quantity("500m"), 0.5);
  EXPECT_EQ(quantity("1.5Gi"), 1.5 * (1 << 30));
  EXPECT_EQ(quantity("2G"), 2e9);
  EXPECT_EQ(quantity("1.5E9"), 1.5e9);
  EXPECT_EQ(quantity("2e-3"), 2e-3);
  EXPECT_EQ(quantity("3u"), 3e-6);
  EXPECT_EQ(quantity("4Ei"), 0x1p62);
}

TEST(K8sPlan, IsMountedComparesWholePathComponents) {
  EXPECT_TRUE(is_mounted(plan(), "/shared"));
  EXPECT_TRUE(is_mounted(plan(), "/shared/out/first"));
  EXPECT_FALSE(is_mounted(plan(), "/sharedother"));
  EXPECT_FALSE(is_mounted(plan(), "/"));
  EXPECT_FALSE(is_mounted(plan(), "/shared/../etc"));
}

}  // namespace
}  // namespace muster::cli
