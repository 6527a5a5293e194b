// Creates the Kubernetes objects of a job that the cluster schedules as one unit. All functions are
// pure.
//
//   JobSet NAME ─┬─ Job leader   one pod: the coordinator (a sidecar) and
//                │               `muster submit --follow`, whose end is the job's
//                └─ Job workers  a worker per node, and spares; a pod that is lost is replaced, and
//                                the coordinator continues with the new one
//   ConfigMap NAME-job   the resolved job
//   ConfigMap NAME-efa   with EFA: the workers' variables for it
//   NetworkPolicy NAME   without TLS: only pods of the JobSet reach each other
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

// Maximum length of a JobSet's name. Pod names are this name plus a suffix like
// "-workers-0-99999-abcde", together at most 63 characters.
constexpr size_t kK8sNameBytesMax = 40;
// Maximum size of the resolved job: Kubernetes limits a ConfigMap to 1 MiB (etcd limits an object
// to 1.5 MiB).
constexpr size_t kJobFileBytesMax = 1 << 20;

// A volume mounted at `path`. `source`: the name of a volume claim in the namespace, or the
// absolute path of a folder on the node.
struct K8sMount {
  std::string source;
  std::string path;
};

// The resource name of the EFA device plugin.
constexpr char kEfaResource[] = "vpc.amazonaws.com/efa";

// The input of k8s_objects(): the options of `muster k8s render`.
struct K8sPlan {
  std::string name;
  std::string namespace_name{};  // empty: kubectl's default
  std::string image{};
  std::string pull_secret{};
  std::string bin_dir = "/opt/muster/bin";
  std::string job_file{};  // the input of `muster submit --job-file`
  int32_t workers = 1;     // including spares
  int32_t slots = 1;
  int32_t gpus = 0;
  std::string gpu_resource = "nvidia.com/gpu";
  int32_t efa = 0;
  std::string huge_pages{};  // memory in huge pages of 2 MiB per worker, as a Kubernetes quantity
  std::string cpu = "1";
  std::string memory = "2Gi";
  std::string shared_memory = "1Gi";
  std::vector<K8sMount> mounts{};
  std::vector<std::pair<std::string, std::string>> node_selector{};
  std::vector<std::string> tolerations{};  // keys
  // names of the node labels with its switches, outermost switch first
  std::vector<std::string> switches_from_node{};
  std::string domain_from_node{};  // name of the node label with its NVLink domain
  // Service account of the workers; needs the right to get nodes if switches_from_node is set.
  std::string service_account{};
  // names of Secrets that become variables; for a repeated key the last Secret wins
  std::vector<std::string> environment_of{};
  std::string queue{};           // Kueue's LocalQueue
  std::string priority_class{};  // Kueue's WorkloadPriorityClass
  std::string topology{};        // node label by which Kueue places the workers close together
  int32_t leave_seconds = 600;
  // name of a Secret with tls.crt, tls.key and ca.crt; requires token_secret
  std::string tls_secret{};
  std::string token_secret{};  // name of a Secret with a token per role
  bool insecure = false;

  bool has_tls() const { return !tls_secret.empty(); }
};

// Converts a run's name to a valid object name: "First run_2" becomes "first-run-2". Returns "" if
// no valid character remains.
std::string k8s_name(const std::string& run_name);
// Parses CLAIM:PATH or FOLDER:PATH.
absl::StatusOr<K8sMount> parse_k8s_mount(const std::string& text);
// Parses a Kubernetes quantity, such as "4", "500m", "1.5" or "64Gi"; nullopt for other text.
std::optional<double> quantity(const std::string& text);
// Returns whether `path` is inside one of the plan's mounts.
bool is_mounted(const K8sPlan& plan, const std::string& path);

// Returns InvalidArgument, with the option's name, if an option is wrong or missing.
absl::Status check_k8s_plan(const K8sPlan& plan);
// Returns the objects in creation order. Requires a plan that passed check_k8s_plan().
std::vector<nlohmann::ordered_json> k8s_objects(const K8sPlan& plan);

}  // namespace muster::cli
