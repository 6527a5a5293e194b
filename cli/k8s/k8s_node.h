// Requests a node's labels from the Kubernetes API, with the service account that is mounted into
// the pod.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/time/time.h"

namespace muster::cli {

// The API server's address, and this pod's credentials.
struct KubeAccount {
  std::string host;  // the API server's address or name, as in its certificate
  std::string port;
  std::string authorities;  // CA certificates that verify the API server's certificate, PEM
  std::string token;
};

// Returns the account of this pod, from Kubernetes' environment variables and the files `token` and
// `ca.crt` in `folder`. Returns FailedPrecondition outside of a pod, NotFound if a file is missing,
// and InvalidArgument if a file is invalid; the message names the variable or the file.
absl::StatusOr<KubeAccount> account_of_pod(const std::string& folder);

// Returns the labels of a node. Blocks for at most `budget`. Returns NotFound, PermissionDenied or
// Unauthenticated, with the API's text, if the API answers so; Unavailable if there is no readable
// answer; InvalidArgument if `node` is not a valid node name.
absl::StatusOr<std::map<std::string, std::string>> node_labels(const KubeAccount& account,
                                                               const std::string& node,
                                                               Duration budget);

// Joins the values of the labels whose names are `wanted` (outermost switch first) with dots:
// "spine.leaf3". Stops at the first label that the node lacks, because levels below an unknown
// switch carry no information.
std::string switches_of_labels(const std::map<std::string, std::string>& labels,
                               const std::vector<std::string>& wanted);

}  // namespace muster::cli
