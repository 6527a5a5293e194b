#include "cli/jobs/update_view.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "cli/terminal/terminal.h"
#include "common/text/escape.h"
#include "jobspec/settings/keys.h"

namespace muster::cli {
namespace {

// The number of revisions that `muster status` shows.
constexpr int kRevisionsShown = 5;
// The bound of the coordinator.
constexpr size_t kChangeBytesMax = 512;

std::string state_of(const v1::Job& job, const v1::Revision& revision) {
  if (revision.pending()) return "pending";
  if (revision.revision() == job.revision() && job.former_revision() != 0)
    return absl::StrCat("on trial for ", revision.rollback_steps(),
                        revision.rollback_steps() == 1 ? " step" : " steps",
                        "; if it fails, the job returns to revision ", job.former_revision());
  return shown(revision.end());
}

// Returns the setting without its value if the key has no effect on a job, such as hf_access_token:
// the value may be a secret, and the coordinator does not have it.
std::string setting_text(const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const jobspec::Key* key = jobspec::find_key(name);
  return key == nullptr || key->support == jobspec::Support::kNoEffect ? name : word;
}

}  // namespace

std::string change_text(const std::vector<std::string>& overrides,
                        const std::vector<std::string>& environment, const v1::JobSpec& program) {
  std::vector<std::string> words;
  for (const std::string& word : overrides) words.push_back(setting_text(word));
  for (const std::string& variable : environment)
    words.push_back(absl::StrCat("--env ", variable.substr(0, variable.find('='))));
  const int arguments = program.command_size() - 1;
  if (arguments >= 0)
    words.push_back(absl::StrCat(
        "-- ", program.command(0),
        arguments == 0
            ? ""
            : absl::StrCat(" and ", arguments, arguments == 1 ? " argument" : " arguments")));
  std::string text = shown(absl::StrJoin(words, " "));
  return text.size() <= kChangeBytesMax ? text : shorten(text, kChangeBytesMax / 4);
}

std::string describe_revisions(const v1::Job& job, int64_t now_unix_ns) {
  std::string text;
  const int first = std::max(job.revisions_size() - kRevisionsShown, 0);
  for (int i = first; i < job.revisions_size(); ++i) {
    const v1::Revision& revision = job.revisions(i);
    absl::StrAppend(&text, "  revision ", revision.revision(),
                    revision.revision() == job.revision() ? " (current)" : "", ", ",
                    format_duration(static_cast<double>(now_unix_ns - revision.unix_ns()) / 1e9),
                    " ago: ", shown(revision.change()), "; ", state_of(job, revision), "\n");
  }
  return text;
}

std::string update_text(const v1::Job& job) {
  if (job.revisions_size() == 0)
    return absl::StrCat("job ", job.id(), ": ", shown(job.reason()), "\n");
  const v1::Revision& newest = *job.revisions().rbegin();
  std::string text = absl::StrCat("job ", job.id(), ": revision ", newest.revision(), " (",
                                  shown(newest.change()), "): ", shown(job.reason()), "\n");
  if (newest.rollback_steps() > 0)
    absl::StrAppend(&text, "if it fails within its first ", newest.rollback_steps(),
                    newest.rollback_steps() == 1 ? " step" : " steps",
                    ", the job returns to the revision before it\n");
  return text;
}

}  // namespace muster::cli
