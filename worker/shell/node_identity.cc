#include "worker/shell/node_identity.h"

#include <algorithm>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>

#include "common/job/limits.h"
#include "common/process/host_name.h"
#include "common/text/escape.h"

namespace muster::worker {
namespace {

bool is_name_character(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
}

// A host's name may have characters that a worker's name, a metric label, must not have.
std::string worker_name_of_host(std::string host) {
  for (char& c : host)
    if (!is_name_character(c)) c = '-';
  return host.substr(0, kNameBytesMax);
}

}  // namespace

std::string name_of(const WorkerOptions& options) {
  return options.name.empty() ? worker_name_of_host(host_name()) : options.name;
}

absl::Status check_name(const std::string& name) {
  const bool ok = std::all_of(name.begin(), name.end(), is_name_character);
  if (ok && !name.empty() && name.size() <= kNameBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--name=", printable(name, kNameBytesMax),
                                                 ": must be 1 to ", kNameBytesMax,
                                                 " letters, digits, '.', '_' or '-'"));
}

absl::Status check_labels(const WorkerOptions& options) {
  absl::Status status;
  for (const std::string& label : options.labels) status.Update(check_label("--label", label));
  for (const std::string& taint : options.taints) status.Update(check_label("--taint", taint));
  if (status.ok() && (options.labels.size() > kLabelsMax || options.taints.size() > kTaintsMax))
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", options.labels.size(), " --label and ", options.taints.size(),
                     " --taint: at most ", kLabelsMax, " and ", kTaintsMax, " are allowed"));
  return status;
}

NodeLabels labels_of(const WorkerOptions& options) {
  NodeLabels labels{.taints = options.taints};
  for (const std::string& label : options.labels) {
    const size_t equals = label.find('=');
    labels.labels[label.substr(0, equals)] = label.substr(equals + 1);
  }
  return labels;
}

}  // namespace muster::worker
