#include "cli/job_news.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

#include "cli/job_view.h"

namespace muster::cli {
namespace {

// Instead of a long sentence that the reader has just seen.
constexpr char kSameFault[] = "the same again";
constexpr char kFaultAbove[] = "the fault above";

}  // namespace

std::vector<std::string> JobNews::update(const v1::Job& job) {
  std::vector<std::string> news;
  if (job.incident().id() > newest_incident_) {
    newest_incident_ = job.incident().id();
    news.push_back(absl::StrCat("incident ", incident_line(job.incident())));
  }
  // Only the newest faults are kept, so that they are told apart by time and not by number.
  for (const v1::Fault& fault : job.faults()) {
    if (fault.unix_ns() <= newest_fault_ns_) continue;
    const std::string at_step =
        fault.last_step() >= 0 ? absl::StrCat(" at step ", fault.last_step()) : std::string();
    const std::string text = describe_fault(fault);
    news.push_back(absl::StrCat("fault", at_step, ": ", text == fault_ ? kSameFault : text));
    fault_ = text;
    newest_fault_ns_ = fault.unix_ns();
  }
  if (job.state() != state_ || job.reason() != reason_ || job.attempt() != attempt_) {
    const std::string text = headline(job);
    news.push_back(fault_.empty() ? text : absl::StrReplaceAll(text, {{fault_, kFaultAbove}}));
  }
  state_ = job.state();
  reason_ = job.reason();
  attempt_ = job.attempt();
  return news;
}

}  // namespace muster::cli
