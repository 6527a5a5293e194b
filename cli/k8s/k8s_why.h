// Finds the reasons why Muster's pods do not run, in Kubernetes' words, for `muster status --why`.
// Calls kubectl with the user's rights: neither the coordinator nor a worker needs rights in the
// cluster, and the command works even if the coordinator's own pod never started.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <nlohmann/json.hpp>

namespace muster::cli {

// Maximum number of listed problems: in a fleet of thousands of pods the same problem may occur
// thousands of times.
constexpr size_t kK8sTroublesMax = 50;

// The state of the pods.
struct K8sReport {
  int pods = 0;
  int ready = 0;
  std::vector<std::string> troubles;  // problems, one sentence each, at most kK8sTroublesMax
  int unnamed = 0;                    // number of problems beyond those in `troubles`
};

// Returns the report for two lists in kubectl's JSON output: `objects` are pods, their owners and
// volume claims; `events` are the namespace's warning events. Ignores entries of an unexpected
// form. Pure.
K8sReport k8s_report(const nlohmann::json& objects, const nlohmann::json& events);

// Returns kubectl's output without log lines such as "E1126 13:58:39.602865    5776
// memcache.go:265] …".
std::string without_log(absl::string_view kubectl_output);
// Runs kubectl and returns the report. `namespace_name`: empty for kubectl's default. Blocks for at
// most some ten seconds.
absl::StatusOr<K8sReport> query_k8s(const std::string& namespace_name, const std::string& selector);

// Returns the report as lines for people. `namespace_name`: as for query_k8s().
std::string k8s_text(const K8sReport& report, const std::string& namespace_name);
nlohmann::json k8s_to_json(const K8sReport& report);

}  // namespace muster::cli
