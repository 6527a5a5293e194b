// Validates a plan; k8s_objects.cc creates the objects.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "cli/k8s/k8s_objects.h"
#include "common/text/escape.h"

namespace muster::cli {
namespace {

constexpr size_t kOptionShown = 100;
constexpr size_t kSwitchLabelsMax = 8;  // also in helm/muster/values.schema.json
// Mount points of a worker's pod (k8s_objects.cc).
constexpr const char* kOwnMounts[] = {"/var/lib/muster", "/dev/shm", "/etc/muster/ca",
                                      "/etc/muster/token", "/run/muster"};

// True if `path` is `folder` or inside it.
bool is_inside(const std::string& path, const std::string& folder) {
  const auto normal = std::filesystem::path(path).lexically_normal();
  const std::string inside = normal.lexically_relative(folder).string();
  return !inside.empty() && inside != ".." && !absl::StartsWith(inside, "../");
}

// Normalises as the file system does: "/dev//shm/" is "/dev/shm".
std::string normal_path(const std::string& path) {
  std::string normal = std::filesystem::path(path).lexically_normal().string();
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

bool is_alnum(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }

// True for a valid label value, which is also the form of a label's name after its prefix.
bool is_label_text(const std::string& text) {
  constexpr size_t kBytesMax = 63;
  return !text.empty() && text.size() <= kBytesMax && is_alnum(text.front()) &&
         is_alnum(text.back()) && std::all_of(text.begin(), text.end(), [](char c) {
           return is_alnum(c) || c == '-' || c == '_' || c == '.';
         });
}

// True for an object name by RFC 1123: lower case, and dots where the kind allows them.
bool is_object_name(const std::string& name, bool may_have_dots) {
  constexpr size_t kBytesMax = 253;
  const auto fits = [&](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-' ||
           (may_have_dots && c == '.');
  };
  return !name.empty() && name.size() <= kBytesMax && is_alnum(name.front()) &&
         is_alnum(name.back()) && std::all_of(name.begin(), name.end(), fits);
}

// True for a name of a label, taint or resource: "name" or "prefix.example/name".
bool is_qualified_name(const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == std::string::npos) return is_label_text(name);
  return is_object_name(name.substr(0, slash), true) && is_label_text(name.substr(slash + 1));
}

absl::Status wrong(const char* option, const std::string& value, const std::string& right) {
  return absl::InvalidArgumentError(
      absl::StrCat(option, " ", printable(value, kOptionShown), ": ", right));
}

absl::Status check_kubernetes_names(const K8sPlan& plan) {
  constexpr char kRule[] = "a Kubernetes name has lower-case letters, digits and '-'";
  if (!is_object_name(plan.name, false) || plan.name.size() > kK8sNameBytesMax) {
    return wrong("--k8s-name", plan.name,
                 absl::StrCat(kRule, ", here at most ", kK8sNameBytesMax, " characters"));
  }
  if (absl::ascii_isdigit(static_cast<unsigned char>(plan.name.front())))
    return wrong("--k8s-name", plan.name, "a Service's name begins with a letter");
  const std::pair<const char*, const std::string*> names[] = {
      {"--namespace", &plan.namespace_name},        {"--pull-secret", &plan.pull_secret},
      {"--tls-secret", &plan.tls_secret},           {"--token-secret", &plan.token_secret},
      {"--service-account", &plan.service_account}, {"--queue", &plan.queue},
      {"--priority-class", &plan.priority_class}};
  for (const auto& [option, name] : names) {
    if (!name->empty() && !is_object_name(*name, true)) return wrong(option, *name, kRule);
  }
  for (const std::string& secret : plan.environment_of)
    if (!is_object_name(secret, true)) return wrong("--env-from-secret", secret, kRule);
  return absl::OkStatus();
}

absl::Status check_node_topology(const K8sPlan& plan) {
  constexpr char kKey[] =
      "must have the form of topology.kubernetes.io/zone: letters, digits, '-', '_' and '.', with "
      "or without a domain and '/' before them";
  for (const auto& [label, value] : plan.node_selector) {
    if (!is_qualified_name(label)) return wrong("--node-selector", label, kKey);
    if (!value.empty() && !is_label_text(value))
      return wrong("--node-selector", absl::StrCat(label, "=", value),
                   "a label's value has at most 63 letters, digits, '-', '_' and '.', and begins "
                   "and ends with a letter or digit");
  }
  for (const std::string& key : plan.tolerations)
    if (!is_qualified_name(key)) return wrong("--toleration", key, kKey);
  if (plan.switches_from_node.size() > kSwitchLabelsMax)
    return absl::InvalidArgumentError(absl::StrCat("--switches-from-node: at most ",
                                                   kSwitchLabelsMax, " labels are allowed, not ",
                                                   plan.switches_from_node.size()));
  for (auto label = plan.switches_from_node.begin(); label != plan.switches_from_node.end();
       ++label) {
    if (!is_qualified_name(*label)) return wrong("--switches-from-node", *label, kKey);
    if (std::find(plan.switches_from_node.begin(), label, *label) != label)
      return wrong("--switches-from-node", *label, "given twice");
  }
  if (!plan.domain_from_node.empty() && !is_qualified_name(plan.domain_from_node))
    return wrong("--domain-from-node", plan.domain_from_node, kKey);
  if (!plan.domain_from_node.empty() && plan.switches_from_node.empty()) {
    return absl::InvalidArgumentError(
        "--domain-from-node is read together with the switches: give --switches-from-node, for "
        "example topology.kubernetes.io/zone");
  }
  if (!plan.switches_from_node.empty() && plan.service_account.empty()) {
    return absl::InvalidArgumentError(
        "--switches-from-node reads each node's labels, which needs the right to get nodes: give "
        "--service-account (docs/kubernetes.md shows how to create one)");
  }
  if (!plan.topology.empty() && !is_qualified_name(plan.topology))
    return wrong("--topology", plan.topology, kKey);
  return absl::OkStatus();
}

absl::Status check_resources(const K8sPlan& plan) {
  const std::pair<const char*, const std::string*> quantities[] = {
      {"--cpu", &plan.cpu},
      {"--memory", &plan.memory},
      {"--shared-memory", &plan.shared_memory},
      {"--huge-pages", &plan.huge_pages}};
  for (const auto& [option, text] : quantities) {
    if (!text->empty() && !quantity(*text))
      return wrong(option, *text, "must be a Kubernetes quantity: 4, 500m, 64Gi");
  }
  if (!is_qualified_name(plan.gpu_resource) || !absl::StrContains(plan.gpu_resource, '/')) {
    return wrong("--gpu-resource", plan.gpu_resource,
                 "must be the resource of a device plugin with its domain: nvidia.com/gpu");
  }
  if (plan.gpus > 0 && plan.gpu_resource == kEfaResource)
    return wrong("--gpu-resource", plan.gpu_resource,
                 "not a GPU: give EFA interfaces as --efa, and GPUs by their own name, such as "
                 "nvidia.com/gpu");
  if (plan.efa > 0 && plan.node_selector.empty() && plan.queue.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the workers request devices (--gpus ", plan.gpus, ", --efa ", plan.efa,
        ") without selecting nodes: give --node-selector, or a --queue whose flavors select them"));
  }
  if (!plan.memory.empty() && quantity(plan.shared_memory) > quantity(plan.memory)) {
    return absl::InvalidArgumentError(absl::StrCat("--shared-memory ", plan.shared_memory,
                                                   " and --memory ", plan.memory,
                                                   ": /dev/shm counts as the container's memory; "
                                                   "increase --memory or reduce --shared-memory"));
  }
  if (plan.gpus > 0 && plan.slots > plan.gpus) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--gpus ", plan.gpus, " and ", plan.slots,
        " ranks on each node: every rank needs its own GPU; give --gpus ", plan.slots));
  }
  return absl::OkStatus();
}

absl::Status check_mounts(const K8sPlan& plan) {
  for (size_t i = 0; i < plan.mounts.size(); ++i) {
    const std::string& path = plan.mounts[i].path;
    for (const char* own : kOwnMounts) {
      if (is_inside(path, own))
        return wrong("--mount", path, "the worker's pod uses this path itself");
    }
    if (is_inside(plan.bin_dir, path)) {
      return wrong("--mount", path,
                   absl::StrCat("it would hide the programs in ", plan.bin_dir,
                                "; give another path, for example /shared"));
    }
    for (size_t k = 0; k < i; ++k)
      if (path == plan.mounts[k].path) return wrong("--mount", path, "two mounts have this path");
  }
  return absl::OkStatus();
}

absl::Status check_trust(const K8sPlan& plan) {
  if (plan.tls_secret.empty() != plan.token_secret.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(plan.has_tls() ? "--tls-secret without --token-secret"
                                    : "--token-secret without --tls-secret",
                     ": tokens are only sent over TLS, and TLS without tokens admits everybody; "
                     "deploy/make-secrets.sh creates both"));
  }
  if (plan.has_tls() && plan.insecure) {
    return absl::InvalidArgumentError(
        "--insecure and --tls-secret: --insecure means no TLS; omit one of them");
  }
  if (plan.has_tls() || plan.insecure) return absl::OkStatus();
  const std::string& name = plan.name;
  return absl::FailedPreconditionError(absl::StrCat(
      "every pod of the cluster could reach the coordinator and run jobs as you. Give "
      "--tls-secret ",
      name, "-tls --token-secret ", name, "-tokens (deploy/make-secrets.sh",
      plan.namespace_name.empty() ? "" : " -n " + plan.namespace_name, " --coordinator ", name,
      "-leader-0-0.", name, " --tls ", name, "-tls --tokens ", name,
      "-tokens creates them) to authenticate callers; or give --insecure to rely on a "
      "NetworkPolicy, which the cluster's network must enforce"));
}

}  // namespace

std::optional<double> quantity(const std::string& text) {
  size_t at = 0;
  const auto digits = [&] {
    const size_t from = at;
    while (at < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[at]))) ++at;
    return at - from;
  };
  if (digits() == 0) return std::nullopt;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (digits() == 0) return std::nullopt;
  }
  constexpr std::pair<const char*, double> kUnits[] = {
      {"", 1},        {"n", 1e-9},    {"u", 1e-6},    {"m", 1e-3},   {"k", 1e3},     {"M", 1e6},
      {"G", 1e9},     {"T", 1e12},    {"P", 1e15},    {"E", 1e18},   {"Ki", 0x1p10}, {"Mi", 0x1p20},
      {"Gi", 0x1p30}, {"Ti", 0x1p40}, {"Pi", 0x1p50}, {"Ei", 0x1p60}};
  // "12E" has a unit, and "12E3" an exponent.
  if (const size_t unit = at; absl::ascii_tolower(static_cast<unsigned char>(text[at])) == 'e') {
    ++at;
    if (text[at] == '+' || text[at] == '-') ++at;
    const bool is_exponent = digits() > 0;
    if (is_exponent && at < text.size()) return std::nullopt;
    if (!is_exponent) at = unit;
  }
  double number = 0;
  if (!absl::SimpleAtod(text.substr(0, at), &number) || std::isinf(number)) return std::nullopt;
  for (const auto& [unit, of_one] : kUnits)
    if (text.substr(at) == unit) return number * of_one;
  return std::nullopt;
}

std::string k8s_name(const std::string& run_name) {
  std::string name = run_name;
  for (char& c : name) c = is_alnum(c) ? absl::ascii_tolower(static_cast<unsigned char>(c)) : '-';
  name.erase(0, std::min(name.find_first_not_of("-0123456789"), name.size()));
  name.resize(std::min(name.size(), kK8sNameBytesMax));
  name.erase(name.find_last_not_of('-') + 1);
  return name;
}

absl::StatusOr<K8sMount> parse_k8s_mount(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon != std::string::npos) {
    K8sMount mount{.source = text.substr(0, colon), .path = text.substr(colon + 1)};
    mount.path = normal_path(mount.path);
    const bool is_source =
        absl::StartsWith(mount.source, "/") || is_object_name(mount.source, true);
    const bool is_path = absl::StartsWith(mount.path, "/") && mount.path.size() > 1 &&
                         mount.path.find(':') == std::string::npos;
    if (is_source && is_path) return mount;
  }
  return wrong("--mount", text,
               "must be CLAIM:/path for a PersistentVolumeClaim, or /folder-of-the-node:/path");
}

bool is_mounted(const K8sPlan& plan, const std::string& path) {
  return std::any_of(plan.mounts.begin(), plan.mounts.end(),
                     [&](const K8sMount& mount) { return is_inside(path, mount.path); });
}

absl::Status check_k8s_plan(const K8sPlan& plan) {
  if (auto status = check_kubernetes_names(plan); !status.ok()) return status;
  if (plan.image.empty() || plan.image.find_first_of(" \t\n") != std::string::npos)
    return wrong("--image", plan.image,
                 "must be an image with Muster: registry.example/muster:1.0");
  if (auto status = check_resources(plan); !status.ok()) return status;
  if (!absl::StartsWith(plan.bin_dir, "/"))
    return wrong("--bin-dir", plan.bin_dir, "must be an absolute path: /opt/muster/bin");
  if (auto status = check_node_topology(plan); !status.ok()) return status;
  if (auto status = check_mounts(plan); !status.ok()) return status;
  if (plan.queue.empty() && !plan.priority_class.empty())
    return absl::InvalidArgumentError("--priority-class needs Kueue: give --queue, too");
  if (plan.queue.empty() && !plan.topology.empty())
    return absl::InvalidArgumentError("--topology needs Kueue: give --queue, too");
  if (plan.job_file.size() > kJobFileBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job has ", plan.job_file.size(), " bytes, but a ConfigMap holds at most ",
                     kJobFileBytesMax, ": shorten its command or its environment"));
  }
  return check_trust(plan);
}

}  // namespace muster::cli
