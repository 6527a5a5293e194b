#include "cli/k8s/k8s_node.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/files/errno_status.h"
#include "common/text/escape.h"
#include "daemon/https_get.h"
#include "daemon/trust_files.h"

namespace muster::cli {
namespace {

// Bounds a node's labels and annotations; etcd stores no object above 1.5 MB.
constexpr uint64_t kNodeBytesMax = 2 << 20;
constexpr size_t kAccountTokenBytesMax = 16 << 10;
constexpr size_t kApiWordsBytesMax = 600;
constexpr size_t kNodeNameBytesMax = 253;
// Requests the object's metadata only, without its images and volumes.
constexpr char kMetadataAlone[] = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status answer_status(unsigned code, const nlohmann::json& answer) {
  std::string words = absl::StrCat("the API of Kubernetes answered ", code);
  if (answer.is_object() && answer.contains("message") && answer["message"].is_string())
    absl::StrAppend(&words, ": ",
                    printable(answer["message"].get_ref<const std::string&>(), kApiWordsBytesMax));
  switch (code) {
    case 401:
      return absl::UnauthenticatedError(words);
    case 403:
      return absl::PermissionDeniedError(words);
    case 404:
      return absl::NotFoundError(words);
    default:
      return absl::UnavailableError(words);
  }
}

}  // namespace

absl::StatusOr<KubeAccount> account_of_pod(const std::string& folder) {
  KubeAccount account{.host = environment("KUBERNETES_SERVICE_HOST"),
                      .port = environment("KUBERNETES_SERVICE_PORT"),
                      .authorities = {},
                      .token = {}};
  if (account.host.empty() || account.port.empty()) {
    return absl::FailedPreconditionError(
        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: run this command in a "
        "pod, where Kubernetes sets them");
  }
  auto authorities = daemon::read_certificates("--account", folder + "/ca.crt");
  if (!authorities.ok()) return authorities.status();
  account.authorities = *std::move(authorities);
  const std::string path = folder + "/token";
  errno = 0;
  std::ifstream file(path);
  if (!file) return file_status(errno, absl::StrCat("--account=", path));
  account.token.resize(kAccountTokenBytesMax);
  file.read(account.token.data(), static_cast<std::streamsize>(account.token.size()));
  account.token.resize(static_cast<size_t>(file.gcount()));
  absl::StripAsciiWhitespace(&account.token);
  const bool is_token = std::all_of(account.token.begin(), account.token.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (account.token.empty() || !is_token)
    return absl::InvalidArgumentError(absl::StrCat("--account=", path, ": not a token"));
  return account;
}

absl::StatusOr<std::map<std::string, std::string>> node_labels(const KubeAccount& account,
                                                               const std::string& node,
                                                               Duration budget) {
  const bool is_name = std::all_of(node.begin(), node.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.';
  });
  if (node.empty() || node.size() > kNodeNameBytesMax || !is_name || node == "." || node == "..") {
    return absl::InvalidArgumentError(
        absl::StrCat("--node=", printable(node, kNodeNameBytesMax),
                     ": a node's name has letters, digits, '-' and '.'"));
  }
  const auto got = daemon::https_get({.host = account.host,
                                      .port = account.port,
                                      .path = absl::StrCat("/api/v1/nodes/", node),
                                      .authorities = account.authorities,
                                      .token = account.token,
                                      .accept = kMetadataAlone,
                                      .body_bytes_max = kNodeBytesMax,
                                      .budget = budget});
  if (!got.ok()) {
    return absl::UnavailableError(absl::StrCat("the API of Kubernetes at ", account.host, ":",
                                               account.port,
                                               " does not answer: ", got.status().message()));
  }
  const auto answer = nlohmann::json::parse(got->body, nullptr, false);
  if (got->code != 200) return answer_status(got->code, answer);
  std::map<std::string, std::string> labels;
  const auto path = nlohmann::json::json_pointer("/metadata/labels");
  if (!answer.is_object())
    return absl::UnavailableError("the answer of the Kubernetes API is not a JSON object");
  if (!answer.contains(path) || !answer[path].is_object()) return labels;
  for (const auto& [name, value] : answer[path].items())
    if (value.is_string()) labels[name] = value.get<std::string>();
  return labels;
}

std::string switches_of_labels(const std::map<std::string, std::string>& labels,
                               const std::vector<std::string>& wanted) {
  std::string switches;
  for (const std::string& name : wanted) {
    const auto label = labels.find(name);
    if (label == labels.end() || label->second.empty()) break;
    absl::StrAppend(&switches, switches.empty() ? "" : ".", label->second);
  }
  return switches;
}

}  // namespace muster::cli
