// What a pod asks Kubernetes' API of its node, with the account that is mounted into it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/time.h"

namespace muster::cli {

struct KubeAccount {
  std::string host;  // an address or a name, as the API's certificate has it
  std::string port;
  std::string authorities;  // who may have signed that certificate, PEM
  std::string token;
};

// This pod's: from Kubernetes' variables, and from the files `token` and `ca.crt` of `folder`. FailedPrecondition outside of a pod, NotFound or
// InvalidArgument where the folder does not have them; each says what is missing.
absl::StatusOr<KubeAccount> account_of_pod(const std::string& folder);

// The labels of a node; returns within `budget`. NotFound, PermissionDenied and Unauthenticated are the API's answers, in its words; Unavailable: there was none, or
// none that can be read; InvalidArgument: `node` cannot be a node's name.
absl::StatusOr<std::map<std::string, std::string>> node_labels(const KubeAccount& account,
                                                               const std::string& node,
                                                               Duration budget);

// The values of `wanted`, the outermost switch first, with dots between them: "spine.leaf3". It ends before the first label that the node does not have,
// because what is below an unknown switch says nothing.
std::string switches_of_labels(const std::map<std::string, std::string>& labels,
                               const std::vector<std::string>& wanted);

}  // namespace muster::cli
