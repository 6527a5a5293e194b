// The objects of a job that a Kubernetes cluster schedules by itself, as one unit. Pure.
//
//   JobSet NAME ─┬─ Job leader   one pod: the coordinator (a sidecar) and `muster submit --follow`, whose end is the job's
//                └─ Job workers  a worker a node, and spares; a pod that goes is replaced, and the coordinator goes on with it
//   ConfigMap NAME-job   the resolved job
//   ConfigMap NAME-efa   with EFA: the workers' variables for it
//   NetworkPolicy NAME   without TLS: pods of the JobSet reach each other, nobody else reaches them
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace muster::cli {

// A pod's name has the JobSet's in front of "-workers-0-99999-abcde", and 63 characters in all.
constexpr size_t kK8sNameBytesMax = 40;
// etcd's bound of an object is 1.5 MiB, and Kubernetes' of a ConfigMap 1 MiB.
constexpr size_t kJobFileBytesMax = 1 << 20;

// What pods see at `path`: a claim of the namespace, or (absolute) a folder of the node.
struct K8sMount {
  std::string source;
  std::string path;
};

// What EFA's device plugin calls its interfaces.
constexpr char kEfaResource[] = "vpc.amazonaws.com/efa";

struct K8sPlan {
  std::string name;
  std::string namespace_name{};  // empty: kubectl's
  std::string image{};
  std::string pull_secret{};
  std::string bin_dir = "/opt/muster/bin";
  std::string job_file{};  // `muster submit --job-file` reads it
  int32_t workers = 1;     // spares among them
  int32_t slots = 1;
  int32_t gpus = 0;
  std::string gpu_resource = "nvidia.com/gpu";
  int32_t efa = 0;
  std::string huge_pages{};  // of 2 MiB, as a quantity of memory
  std::string cpu = "1";
  std::string memory = "2Gi";
  std::string shared_memory = "1Gi";
  std::vector<K8sMount> mounts{};
  std::vector<std::pair<std::string, std::string>> node_selector{};
  std::vector<std::string> tolerations{};         // keys
  std::vector<std::string> switches_from_node{};  // its labels, the outermost switch first
  std::string service_account{};  // of the workers; may get nodes, with switches_from_node
  std::vector<std::string> environment_of{};  // Secrets; of a key in several the last one counts
  std::string queue{};                        // Kueue's LocalQueue
  std::string priority_class{};               // Kueue's WorkloadPriorityClass
  std::string topology{};  // a label of nodes: Kueue keeps the workers together by it
  int32_t leave_seconds = 600;
  std::string tls_secret{};    // of tls.crt, tls.key and ca.crt; with token_secret
  std::string token_secret{};  // of a token for each role
  bool insecure = false;

  bool has_tls() const { return !tls_secret.empty(); }
};

// "First run_2" is "first-run-2"; empty where nothing of it is left.
std::string k8s_name(const std::string& run_name);
// CLAIM:PATH or FOLDER:PATH.
absl::StatusOr<K8sMount> parse_k8s_mount(const std::string& text);
// "4", "500m", "1.5", "64Gi"; nothing where it is none.
std::optional<double> quantity(const std::string& text);
// `path` is in one of the mounts.
bool is_mounted(const K8sPlan& plan, const std::string& path);

// InvalidArgument names the option that is wrong or missing.
absl::Status check_k8s_plan(const K8sPlan& plan);
// In the order in which they are to be created; of a plan that was checked.
std::vector<nlohmann::ordered_json> k8s_objects(const K8sPlan& plan);

}  // namespace muster::cli
