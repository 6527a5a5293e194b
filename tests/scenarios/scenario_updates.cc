// Updates of jobs in scenarios.
#include <algorithm>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "tests/scenarios/job_words.h"
#include "tests/scenarios/scenario.h"
#include "tests/scenarios/words.h"

namespace muster::coordinator {

std::string Scenario::update(const Words& words) {
  JobUpdateRequested event;
  event.token = RequestToken(next_token_++);
  event.job = JobId(std::stoull(words.at(1)));
  event.unix_ns = unix_ns_;
  event.withdraws = words.at(2) == "withdraw";
  event.request_id = value_of(words, "request").value_or("");
  event.rollback_steps = number_of<int64_t>(words, "rollback", 10);
  const auto job = core_->jobs().find(event.job);
  if (event.withdraws)
    event.revision = number_of(words, "revision", 0);
  else if (job != core_->jobs().end())
    event.revision = number_of(words, "revision", job->second.revision);
  if (words.back() == "now") event.time = UpdateTime::kNow;
  if (words.back() == "at-checkpoint") event.time = UpdateTime::kAtCheckpoint;
  for (const std::string& word : words) {
    if (word.find('=') == std::string::npos) continue;
    if (!set_job_field(word, event.spec)) return absl::StrCat("no such field: ", word);
    event.change = word;
  }
  step(event);
  return "";
}

std::string Scenario::expect_revision(const Job& job, const Words& words) const {
  std::string got = absl::StrCat(job.revision);
  if (job.trial)
    absl::StrAppend(&got, " trial ", job.trial->rollback_steps, " former ",
                    job.trial->former_revision);
  if (job.update) absl::StrAppend(&got, " pending ", job.update->note.revision);
  if (!job.revisions.empty()) absl::StrAppend(&got, " \"", job.revisions.back().end, "\"");
  const bool is_quoted = absl::StrContains(words.back(), ' ');
  const Words plain(words.begin() + 3, words.end() - (is_quoted ? 1 : 0));
  std::string wanted;
  for (const std::string& word : plain) absl::StrAppend(&wanted, wanted.empty() ? "" : " ", word);
  const bool good = absl::StartsWith(got + " ", wanted + " ") && (plain.size() > 1 || !job.trial) &&
                    (!is_quoted || absl::StrContains(got, words.back()));
  return good ? "" : absl::StrCat("it is ", got);
}

std::string Scenario::expect_spec(const Job& job, const Words& words) const {
  const auto started = started_.find(job.id);
  if (started == started_.end()) return "no rank was started";
  JobSpec wanted = started->second;
  if (!set_job_field(words.at(3), wanted)) return absl::StrCat("no such field: ", words.at(3));
  return wanted == started->second ? ""
                                   : absl::StrCat("its ranks were started without ", words.at(3));
}

}  // namespace muster::coordinator
