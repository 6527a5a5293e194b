// Reasons why Muster's pods do not run, in Kubernetes' words, for `muster status --why`. They are
// fetched by kubectl with the caller's rights, so that neither the coordinator nor a worker needs
// rights in the cluster, and also when the coordinator's own pod never started.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <nlohmann/json.hpp>

namespace muster::cli {

// A fleet of thousands has the same problem thousands of times.
constexpr size_t kK8sTroublesMax = 50;

struct K8sReport {
  int pods = 0;
  int ready = 0;
  std::vector<std::string> troubles;  // one sentence each, at most kK8sTroublesMax
  int unnamed = 0;                    // troubles beyond that
};

// Builds the report from two lists as kubectl prints them: pods with their owners and claims, and
// the namespace's warning events. Pure. Entries of an unexpected form are ignored.
K8sReport k8s_report(const nlohmann::json& objects, const nlohmann::json& events);

// Returns kubectl's output without its log lines, for example "E1126 13:58:39.602865    5776
// memcache.go:265] …".
std::string without_log(absl::string_view kubectl_output);
// `namespace_name`: empty for kubectl's default. Blocks for at most some ten seconds.
absl::StatusOr<K8sReport> query_k8s(const std::string& namespace_name, const std::string& selector);

// Returns lines for people. `namespace_name` as above.
std::string k8s_text(const K8sReport& report, const std::string& namespace_name);
nlohmann::json k8s_to_json(const K8sReport& report);

}  // namespace muster::cli
