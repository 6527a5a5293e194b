// Why pods of Muster do not run, in Kubernetes' words: `muster status --why`. It is asked with kubectl, as whoever calls, so that neither the coordinator nor a worker
// needs a right there, and so that it tells of a coordinator that never came up.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <nlohmann/json.hpp>

namespace muster::cli {

// A fleet of thousands has one trouble thousands of times.
constexpr size_t kK8sTroublesMax = 50;

struct K8sReport {
  int pods = 0;
  int ready = 0;
  std::vector<std::string> troubles;  // a sentence each, at most kK8sTroublesMax
  int unnamed = 0;                    // troubles beyond that
};

// Of two lists as kubectl prints them: pods with what makes them and their claims, and warning events of the namespace. Pure; what is not as Kubernetes
// says it is left out.
K8sReport k8s_report(const nlohmann::json& objects, const nlohmann::json& events);

// What kubectl has said without the lines of its log: "E1126 13:58:39.602865    5776 memcache.go:265] …".
std::string without_log(absl::string_view said);
// `namespace_name`: empty for kubectl's own. Blocks, at most some ten seconds.
absl::StatusOr<K8sReport> ask_k8s(const std::string& namespace_name, const std::string& selector);

// Lines for people. `namespace_name` as above.
std::string k8s_text(const K8sReport& report, const std::string& namespace_name);
nlohmann::json k8s_to_json(const K8sReport& report);

}  // namespace muster::cli
