#include "cli/jobs/job_sizes.h"

#include <absl/strings/str_cat.h>

namespace muster::cli {

absl::Status check_each_size(const v1::JobSpec& spec,
                             const std::function<absl::Status(const std::string&)>& check) {
  if (auto status = check(spec.train_config_json()); !status.ok()) return status;
  for (const v1::Smaller& size : spec.smaller()) {
    const absl::Status status = check(size.train_config_json());
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat("on ", size.nodes(), " of ", spec.nodes(),
                                                    " nodes (min_nodes): ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace muster::cli
