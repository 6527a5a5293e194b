#include "cli/jobs/program_options.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/job/limits.h"
#include "daemon/help.h"

namespace muster::cli {
namespace {

constexpr ProgramOptionRow kProgramOptions[] = {
    {"--restarts", "N", 0, kRestartsMax,
     "For a program behind --: restarts allowed per cause; progress resets the count (default: 3; "
     "docs/recovery.md). A config has restarts_max=N",
     "for a config, set restarts_max=N",
     [](v1::JobSpec& job, int64_t value) { job.set_restarts_max(static_cast<int32_t>(value)); }},
    {"--hang-after", "SECONDS", 1, kHangAfterSecondsMax,
     "For a program behind --: restart it when no rank has written output for this long; without "
     "it, hangs are detected by reported steps only",
     "the trainer reports its steps",
     [](v1::JobSpec& job, int64_t value) { job.set_hang_after_seconds(value); }},
    {"--segment-nodes", "N", 1, kNodesMax,
     "For a program behind --: each N consecutive nodes get one NVLink domain, or one switch, if "
     "possible",
     "the mesh between nodes determines it",
     [](v1::JobSpec& job, int64_t value) { job.set_segment_nodes(static_cast<int32_t>(value)); }},
};

}  // namespace

absl::StatusOr<std::vector<std::string>> words_of_program(const std::string& program) {
  const auto words = nlohmann::json::parse(program, nullptr, /*allow_exceptions=*/false);
  const bool are_words =
      words.is_array() && !words.empty() &&
      std::all_of(words.begin(), words.end(), [](const auto& word) { return word.is_string(); });
  if (!are_words) {
    return absl::InvalidArgumentError(
        "--program is an internal option; put -- in front of the program: muster run -- COMMAND "
        "ARGS");
  }
  return words.get<std::vector<std::string>>();
}

std::span<const ProgramOptionRow> program_options() { return kProgramOptions; }

void ProgramOptions::declare(CLI::App& command) {
  for (const ProgramOptionRow& option : kProgramOptions) {
    const auto take = [this, flag = option.flag](int64_t value) { given_[flag] = value; };
    command.add_option_function<int64_t>(option.flag, take, option.help)
        ->type_name(option.type_name)
        ->transform(daemon::whole_number(option.min, option.max));
  }
}

void ProgramOptions::apply(v1::JobSpec& job) const {
  for (const ProgramOptionRow& option : kProgramOptions) {
    const auto given = given_.find(option.flag);
    if (given != given_.end()) option.set(job, given->second);
  }
}

std::vector<std::string> ProgramOptions::words() const {
  std::vector<std::string> words;
  for (const ProgramOptionRow& option : kProgramOptions) {
    const auto given = given_.find(option.flag);
    if (given != given_.end())
      words.insert(words.end(), {option.flag, absl::StrCat(given->second)});
  }
  return words;
}

absl::Status ProgramOptions::check_none_given() const {
  for (const ProgramOptionRow& option : kProgramOptions) {
    if (!given_.contains(option.flag)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(option.flag, " needs a program behind --; ", option.for_config));
  }
  return absl::OkStatus();
}

}  // namespace muster::cli
