#include "cli/k8s/k8s_why.h"

#include <map>
#include <optional>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include "cli/run/run_command.h"
#include "cli/terminal/terminal.h"
#include "common/process/exit_code.h"
#include "common/text/escape.h"

namespace muster::cli {
namespace {

using Value = nlohmann::json;

constexpr auto kKubectlDeadline = std::chrono::seconds(20);
constexpr char kRequestTimeout[] = "--request-timeout=10s";
// Kubernetes quotes whole objects in some messages.
constexpr size_t kMessageBytesMax = 600;

// Returns the value at `path`, or null. The input is untrusted: a value may have any type.
const Value& at(const Value& value, std::initializer_list<const char*> path) {
  static const Value kNull;
  const Value* found = &value;
  for (const char* key : path) {
    if (!found->is_object()) return kNull;
    const auto item = found->find(key);
    if (item == found->end()) return kNull;
    found = &*item;
  }
  return *found;
}

std::string text_at(const Value& value, std::initializer_list<const char*> path) {
  const Value& found = at(value, path);
  std::string text = found.is_string() ? found.get<std::string>() : "";
  return text.size() > kMessageBytesMax ? printable(text, kMessageBytesMax) : text;
}

int64_t number_at(const Value& value, std::initializer_list<const char*> path, int64_t otherwise) {
  const Value& found = at(value, path);
  return found.is_number_integer() ? found.get<int64_t>() : otherwise;
}

const Value& items_of(const Value& list) {
  static const Value kNone = Value::array();
  const Value& items = at(list, {"items"});
  return items.is_array() ? items : kNone;
}

// The newest warning per object and reason.
class Warnings {
 public:
  explicit Warnings(const Value& events) {
    for (const Value& event : items_of(events)) {
      if (text_at(event, {"type"}) != "Warning") continue;
      Warning& warning =
          newest_[{text_at(event, {"involvedObject", "kind"}),
                   text_at(event, {"involvedObject", "name"})}][text_at(event, {"reason"})];
      std::string when = text_at(event, {"lastTimestamp"});
      if (when.empty()) when = text_at(event, {"eventTime"});
      if (when < warning.when) continue;
      warning = {std::move(when), text_at(event, {"message"})};
    }
  }

  // Returns the newest message among `reasons`; empty: none.
  std::string message(const std::string& kind, const std::string& name,
                      std::initializer_list<const char*> reasons) const {
    const auto object = newest_.find({kind, name});
    if (object == newest_.end()) return "";
    Warning found;
    for (const char* reason : reasons) {
      const auto warning = object->second.find(reason);
      if (warning != object->second.end() && warning->second.when >= found.when)
        found = warning->second;
    }
    return found.message;
  }

 private:
  struct Warning {
    std::string when;  // in Kubernetes' text form, which sorts by time
    std::string message;
  };
  std::map<std::pair<std::string, std::string>, std::map<std::string, Warning>> newest_;
};

bool condition_is(const Value& object, const char* type, const char* status, std::string& message) {
  const Value& conditions = at(object, {"status", "conditions"});
  if (!conditions.is_array()) return false;
  for (const Value& condition : conditions) {
    if (text_at(condition, {"type"}) != type || text_at(condition, {"status"}) != status) continue;
    message = text_at(condition, {"message"});
    return true;
  }
  return false;
}

std::string because(const std::string& message) {
  return message.empty() ? "" : absl::StrCat(": ", message);
}

// Returns "exit code 1 (OOMKilled)" for a container's end.
std::string end_text(const Value& terminated) {
  const int64_t code = number_at(terminated, {"exitCode"}, -1);
  const std::string why = text_at(terminated, {"reason"});
  return absl::StrCat(code < 0 ? "an unknown exit code" : absl::StrCat("exit code ", code),
                      why.empty() || why == "Error" ? "" : absl::StrCat(" (", why, ")"));
}

// Returns the trouble in one container's state; empty: none.
std::string container_problem(const Value& status) {
  const std::string name = text_at(status, {"name"});
  const std::string reason = text_at(status, {"state", "waiting", "reason"});
  const std::string message = text_at(status, {"state", "waiting", "message"});
  if (absl::StrContains(reason, "Image")) {
    return absl::StrCat("cannot pull the image ", text_at(status, {"image"}), " of ", name, " (",
                        reason, ")", because(message));
  }
  if (reason == "CrashLoopBackOff") {
    return absl::StrCat("starts ", name, " again and again, the last time after ",
                        end_text(at(status, {"lastState", "terminated"})),
                        "; kubectl logs --previous shows its output");
  }
  if (!reason.empty() && reason != "ContainerCreating" && reason != "PodInitializing")
    return absl::StrCat("cannot start ", name, " (", reason, ")", because(message));
  return "";
}

std::string problem_of_containers(const Value& pod) {
  for (const char* kind : {"initContainerStatuses", "containerStatuses"}) {
    const Value& statuses = at(pod, {"status", kind});
    if (!statuses.is_array()) continue;
    for (const Value& status : statuses) {
      std::string trouble = container_problem(status);
      if (!trouble.empty()) return trouble;
    }
  }
  return "";
}

// Returns the trouble of a failed pod, which is not restarted: its Job creates another one. Empty:
// it left on request.
std::string failure_problem(const Value& pod) {
  const std::string reason = text_at(pod, {"status", "reason"});
  if (!reason.empty())
    return absl::StrCat("has failed (", reason, ")", because(text_at(pod, {"status", "message"})));
  for (const char* kind : {"initContainerStatuses", "containerStatuses"}) {
    const Value& statuses = at(pod, {"status", kind});
    if (!statuses.is_array()) continue;
    for (const Value& status : statuses) {
      const Value& end = at(status, {"state", "terminated"});
      const int64_t code = number_at(end, {"exitCode"}, end.is_object() ? -1 : 0);
      if (code == 0 || code == to_int(ExitCode::kPreempted)) continue;
      return absl::StrCat("has failed: ", text_at(status, {"name"}), " ended with ", end_text(end),
                          because(text_at(end, {"message"})), "; kubectl logs shows its output");
    }
  }
  return "";
}

// Empty: no trouble, or none that Kubernetes could explain.
std::string pod_problem(const Value& pod, const Warnings& warnings) {
  const std::string name = text_at(pod, {"metadata", "name"});
  const std::string phase = text_at(pod, {"status", "phase"});
  if (phase == "Succeeded") return "";
  std::string message;
  if (phase == "Failed") return failure_problem(pod);
  if (condition_is(pod, "PodScheduled", "False", message))
    return absl::StrCat("is not scheduled", because(message));
  if (std::string trouble = problem_of_containers(pod); !trouble.empty()) return trouble;
  if (condition_is(pod, "Ready", "True", message)) return "";
  const std::string volume =
      warnings.message("Pod", name, {"FailedMount", "FailedAttachVolume", "FailedMapVolume"});
  if (phase == "Pending" && !volume.empty()) return absl::StrCat("waits for a volume: ", volume);
  const std::string sandbox =
      warnings.message("Pod", name, {"FailedCreatePodSandBox", "Failed", "FailedPreStopHook"});
  if (phase == "Pending" && !sandbox.empty()) return absl::StrCat("cannot be started: ", sandbox);
  const std::string node = text_at(pod, {"spec", "nodeName"});
  if (at(pod, {"metadata", "deletionTimestamp"}).is_string())
    return node.empty() ? "" : absl::StrCat("is leaving node ", node);
  if (phase == "Running") {
    const std::string probe = warnings.message("Pod", name, {"Unhealthy"});
    return absl::StrCat("runs and is not ready", because(probe),
                        probe.empty() ? "; is its coordinator there?" : "");
  }
  return node.empty() ? "" : absl::StrCat("is being started on node ", node);
}

// Returns why the API rejects pods of an owner: a quota, an admission policy.
std::string owner_problem(const Value& object, const std::string& kind, const Warnings& warnings) {
  int64_t wanted = number_at(object, {"spec", "replicas"}, 1);
  int64_t there = number_at(object, {"status", "replicas"}, 0);
  if (kind == "DaemonSet") {
    wanted = number_at(object, {"status", "desiredNumberScheduled"}, 0);
    there = number_at(object, {"status", "currentNumberScheduled"}, 0);
  } else if (kind == "Job") {
    wanted = number_at(object, {"spec", "parallelism"}, 1);
    there =
        number_at(object, {"status", "active"}, 0) + number_at(object, {"status", "succeeded"}, 0);
    if (at(object, {"spec", "suspend"}) == true)
      return "is suspended: it waits for its queue to admit it";
  }
  if (there >= wanted) return "";
  const std::string refused = warnings.message(kind, text_at(object, {"metadata", "name"}),
                                               {"FailedCreate", "FailedDaemonPod"});
  return refused.empty() ? "" : absl::StrCat("has ", there, " of ", wanted, " pods: ", refused);
}

std::string claim_problem(const Value& claim, const Warnings& warnings) {
  if (text_at(claim, {"status", "phase"}) == "Bound") return "";
  const std::string why =
      warnings.message("PersistentVolumeClaim", text_at(claim, {"metadata", "name"}),
                       {"ProvisioningFailed", "FailedBinding"});
  return absl::StrCat("has no volume", because(why));
}

}  // namespace

K8sReport k8s_report(const Value& objects, const Value& events) {
  const Warnings warnings(events);
  K8sReport report;
  for (const Value& object : items_of(objects)) {
    const std::string kind = text_at(object, {"kind"});
    std::string trouble, ready_message;
    const char* called = "";
    if (kind == "Pod") {
      called = "pod";
      ++report.pods;
      if (condition_is(object, "Ready", "True", ready_message)) ++report.ready;
      trouble = pod_problem(object, warnings);
    } else if (kind == "PersistentVolumeClaim") {
      called = "claim";
      trouble = claim_problem(object, warnings);
    } else if (kind == "StatefulSet" || kind == "DaemonSet" || kind == "Job") {
      called = kind.c_str();
      trouble = owner_problem(object, kind, warnings);
    }
    if (trouble.empty()) continue;
    if (report.troubles.size() == kK8sTroublesMax) {
      ++report.unnamed;
      continue;
    }
    report.troubles.push_back(
        absl::StrCat(called, " ", text_at(object, {"metadata", "name"}), " ", trouble));
  }
  return report;
}

std::string without_log(absl::string_view kubectl_output) {
  const auto is_message = [](absl::string_view line) {
    return !absl::StrContains(line, ".go:") || !absl::StrContains(line, "] ");
  };
  return absl::StrJoin(absl::StrSplit(kubectl_output, '\n', is_message), "\n");
}

absl::StatusOr<K8sReport> query_k8s(const std::string& namespace_name,
                                    const std::string& selector) {
  std::vector<std::string> get = {"kubectl", "get", "-o", "json", kRequestTimeout};
  if (!namespace_name.empty()) get.insert(get.end(), {"--namespace", namespace_name});
  const auto query = [&](std::initializer_list<std::string> more) -> absl::StatusOr<Value> {
    std::vector<std::string> words = get;
    words.insert(words.end(), more);
    const auto text = output_of(words, kKubectlDeadline);
    if (!text.ok()) {
      return absl::Status(text.status().code(), absl::StrCat("cannot query Kubernetes: ",
                                                             without_log(text.status().message())));
    }
    Value parsed = Value::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_discarded()) return absl::InternalError("the output of kubectl is not JSON");
    return parsed;
  };
  const auto objects =
      query({"pods,statefulsets,daemonsets,jobs,persistentvolumeclaims", "--selector", selector});
  if (!objects.ok()) return objects.status();
  // A user with access to pods but not to events gets fewer details.
  const auto events = query({"events", "--field-selector", "type=Warning"});
  if (!events.ok()) warn(std::string(events.status().message()));
  return k8s_report(*objects, events.ok() ? *events : Value());
}

std::string k8s_text(const K8sReport& report, const std::string& namespace_name) {
  const std::string where =
      namespace_name.empty() ? "kubectl's namespace" : absl::StrCat("namespace ", namespace_name);
  std::string text = absl::StrCat("Kubernetes, ", where, ": ", report.ready, " of ", report.pods,
                                  report.pods == 1 ? " pod" : " pods", " of Muster ready\n");
  for (const std::string& trouble : report.troubles)
    absl::StrAppend(&text, "  ", shown(trouble), "\n");
  if (report.unnamed > 0) absl::StrAppend(&text, "  and ", report.unnamed, " more\n");
  return text;
}

Value k8s_to_json(const K8sReport& report) {
  return {{"pods", report.pods},
          {"ready", report.ready},
          {"troubles", report.troubles},
          {"unnamed", report.unnamed}};
}

}  // namespace muster::cli
