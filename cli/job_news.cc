#include "cli/job_news.h"

#include <absl/strings/str_cat.h>

#include "cli/job_view.h"

namespace muster::cli {

std::vector<std::string> JobNews::update(const v1::Job& job) {
  std::vector<std::string> news;
  // Only the newest faults are kept, so that they are told apart by time and not by number.
  for (const v1::Fault& fault : job.faults()) {
    if (fault.unix_ns() <= newest_fault_ns_) continue;
    const std::string at_step =
        fault.last_step() >= 0 ? absl::StrCat(" at step ", fault.last_step()) : std::string();
    news.push_back(absl::StrCat("fault", at_step, ": ", describe_fault(fault)));
    newest_fault_ns_ = fault.unix_ns();
  }
  if (job.state() != state_ || job.reason() != reason_ || job.attempt() != attempt_) {
    news.push_back(headline(job));
  }
  state_ = job.state();
  reason_ = job.reason();
  attempt_ = job.attempt();
  return news;
}

}  // namespace muster::cli
