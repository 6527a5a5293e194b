// A request for a node's labels to the Kubernetes API, with the service account mounted into the
// pod.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/time.h"

namespace muster::cli {

struct KubeAccount {
  std::string host;  // an address or a name, as in the API server's certificate
  std::string port;
  std::string authorities;  // CA certificates for that certificate, PEM
  std::string token;
};

// Returns the account of this pod, from Kubernetes' environment variables and the files `token` and
// `ca.crt` in `folder`. FailedPrecondition outside of a pod; NotFound or InvalidArgument when a
// file is missing or invalid; each names what is missing.
absl::StatusOr<KubeAccount> account_of_pod(const std::string& folder);

// Returns the labels of a node within `budget`. NotFound, PermissionDenied and Unauthenticated are
// answers of the API, with its text. Unavailable: no answer, or an unreadable one. InvalidArgument:
// `node` is not a valid node name.
absl::StatusOr<std::map<std::string, std::string>> node_labels(const KubeAccount& account,
                                                               const std::string& node,
                                                               Duration budget);

// Joins the values of the labels `wanted`, outermost switch first, with dots: "spine.leaf3". Ends
// before the first label that the node lacks, because levels below an unknown switch carry no
// information.
std::string switches_of_labels(const std::map<std::string, std::string>& labels,
                               const std::vector<std::string>& wanted);

}  // namespace muster::cli
