// Checks a scenario's expectations of orders and state.
#include <algorithm>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "coordinator/core/records/sizes.h"
#include "tests/scenarios/scenario.h"
#include "tests/scenarios/sizes.h"
#include "tests/scenarios/words.h"

namespace muster::coordinator {

bool Scenario::take(const std::string& wanted) {
  const auto it =
      std::find_if(decisions_.begin(), decisions_.end(), [&](const std::string& decision) {
        return decision == wanted || decision.rfind(wanted + " ", 0) == 0;
      });
  if (it == decisions_.end()) return false;
  decisions_.erase(it);
  return true;
}

std::string Scenario::expect(const Words& words) {
  const std::string& what = words.at(1);
  if (what == "start" || what == "stop" || what == "save" || what == "dump" ||
      what == "symbolize" || what == "check") {
    std::string wanted = absl::StrJoin(words.begin() + 1, words.end(), " ");
    if (what == "stop" && words.size() == 4) wanted += " grace 0";
    if (take(wanted)) return "";
    return absl::StrCat("instead: ",
                        decisions_.empty() ? "nothing" : absl::StrJoin(decisions_, "; "));
  }
  if (what == "refuse") {
    const std::string wanted = absl::StrCat("refuse ", words.at(2), " ", words.at(3));
    for (const std::string& decision : decisions_) {
      if (words.size() > 4 && !absl::StrContains(decision, words[4])) continue;
      if (take(wanted)) return "";
    }
    return absl::StrCat("instead: ",
                        decisions_.empty() ? "nothing" : absl::StrJoin(decisions_, "; "));
  }
  if (what == "probe") {
    return probes_.contains(absl::StrCat(words.at(2), " ", words.at(3)))
               ? ""
               : absl::StrCat("instead: ", absl::StrJoin(probes_, "; "));
  }
  if (what == "acknowledged") return last_ack_.empty() ? "it was not" : "";
  if (what == "not-acknowledged") return last_ack_.empty() ? "" : "it was";
  if (what == "node") return expect_node(words);
  if (what == "ended" || what == "unfinished") return expect_copies(words);
  if (what == "reply") return expect_reply(words);
  if (what == "incident" || what == "incidents") return expect_incident(words);
  if (what == "stacks") return expect_stacks(words);
  if (what == "recovery") return expect_recovery(words);
  return expect_state(words);
}

std::string Scenario::expect_reply(const Words& words) {
  if (!last_reply_) return "there was no reply";
  const std::string code(absl::StatusCodeToString(last_reply_->status.code()));
  const std::string got =
      absl::StrCat(code, " job ", last_reply_->job.value(), " ", last_reply_->status.message());
  if (code != words.at(2)) return absl::StrCat("instead: ", got);
  if (const auto job = value_of(words, "job");
      job && *job != absl::StrCat(last_reply_->job.value())) {
    return absl::StrCat("instead: ", got);
  }
  const std::string& part = words.back();
  const bool has_part = words.size() == 4 || words.size() == 6;
  return !has_part || absl::StrContains(got, part) ? "" : absl::StrCat("instead: ", got);
}

std::string Scenario::expect_state(const Words& words) {
  const std::string& what = words.at(1);
  if (what == "jobs") {
    const size_t count = core_->jobs().size();
    return absl::StrCat(count) == words.at(2) ? "" : absl::StrCat("there are ", count);
  }
  if (what == "slots") {
    const NodeUses by_worker = core_->use_by_worker();
    const auto it = by_worker.find(WorkerName(words.at(2)));
    const int32_t used = it == by_worker.end() ? 0 : it->second.slots;
    return absl::StrCat(used) == words.at(3) ? "" : absl::StrCat(used, " are used");
  }
  const auto it = core_->jobs().find(JobId(std::stoull(words.at(2))));
  if (it == core_->jobs().end()) return "there is no such job";
  const Job& job = it->second;
  if (what == "exitcode") {
    return absl::StrCat(job.exit_code) == words.at(3) ? "" : absl::StrCat("it is ", job.exit_code);
  }
  if (what == "placement" || what == "held") {
    const std::string got = names_text(what == "held" ? job.held : nodes_of(job.placement));
    return got == absl::StrJoin(words.begin() + 3, words.end(), " ") ? ""
                                                                     : absl::StrCat("it is ", got);
  }
  if (what == "time") return expect_time(job, words);
  if (what == "revision") return expect_revision(job, words);
  if (what == "spec") return expect_spec(job, words);
  if (what != "job") return absl::StrCat("no such expectation: ", what);
  const bool good = job_state_name(job.state) == words.at(3) &&
                    (words.size() < 5 || absl::StrContains(job.reason, words[4]));
  return good ? "" : absl::StrCat("it is ", av(job_state_name(job.state)), ": ", job.reason);
}

}  // namespace muster::coordinator
