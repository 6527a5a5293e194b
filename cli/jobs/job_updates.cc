#include "cli/jobs/job_updates.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

#include "cli/jobs/job_view.h"
#include "common/text/escape.h"

namespace muster::cli {
namespace {

// Replaces a long sentence that was just printed.
constexpr char kSameFault[] = "the same again";
constexpr char kFaultAbove[] = "the fault above";

}  // namespace

std::vector<std::string> JobUpdates::update(const v1::Job& job) {
  std::vector<std::string> notice;
  // The sentence about a new incident, until it is printed.
  std::string where, sentence;
  if (job.incident().id() > newest_incident_) {
    newest_incident_ = job.incident().id();
    sentence = escape_controls(job.incident().sentence(), Layout::kOneLine);
    where = absl::StrCat(" (muster incident show ", newest_incident_, coordinator_, ")");
  }
  // The coordinator keeps only the newest faults, so that new ones are found by time and not by
  // their number.
  for (const v1::Fault& fault : job.faults()) {
    if (fault.unix_ns() <= newest_fault_ns_) continue;
    const std::string at_step =
        fault.last_step() >= 0 ? absl::StrCat(" at step ", fault.last_step()) : std::string();
    const std::string text = describe_fault(fault);
    const bool is_incident = !where.empty() && text.find(sentence) != std::string::npos;
    notice.push_back(absl::StrCat("fault", at_step, ": ", text == fault_ ? kSameFault : text,
                                  is_incident ? std::exchange(where, "") : ""));
    fault_ = text;
    newest_fault_ns_ = fault.unix_ns();
  }
  if (!where.empty())
    notice.insert(notice.begin(),
                  absl::StrCat("incident ", newest_incident_, ": ", sentence, where));
  if (job.state() != state_ || job.reason() != reason_ || job.attempt() != attempt_) {
    const std::string text = headline(job);
    notice.push_back(fault_.empty() ? text : absl::StrReplaceAll(text, {{fault_, kFaultAbove}}));
  }
  state_ = job.state();
  reason_ = job.reason();
  attempt_ = job.attempt();
  return notice;
}

}  // namespace muster::cli
