#include "cli/jobs/queue_options.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>

#include "common/job/job_spec.h"
#include "common/job/node_labels.h"
#include "common/text/escape.h"
#include "daemon/help.h"

namespace muster::cli {
namespace {

constexpr size_t kShownMax = 100;
constexpr int64_t kMinute = 60, kHour = 3600, kDay = 86'400;
// As many tasks as Slurm's default permits. Each is a job, and the queue has room for 10,000.
constexpr size_t kTasksMax = 1'000;

absl::Status wrong(const std::string& option, const std::string& text, const std::string& right) {
  return absl::InvalidArgumentError(
      absl::StrCat(option, " ", printable(text, kShownMax), ": it must be ", right));
}

bool parse_number(absl::string_view text, int64_t most, int64_t& number) {
  const bool is_plain = !text.empty() && text.size() <= 18 &&
                        std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  return is_plain && absl::SimpleAtoi(text, &number) && number <= most;
}

// Parses "1h30m". Each unit appears at most once, in descending order.
std::optional<int64_t> parse_units(absl::string_view text) {
  constexpr std::array<std::pair<char, int64_t>, 4> kUnits = {
      {{'d', kDay}, {'h', kHour}, {'m', kMinute}, {'s', 1}}};
  int64_t seconds = 0;
  size_t unit = 0;
  while (!text.empty()) {
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    int64_t number = 0;
    if (digits == text.size() ||
        !parse_number(text.substr(0, digits), kTimeLimitSecondsMax, number))
      return std::nullopt;
    while (unit < kUnits.size() && kUnits[unit].first != text[digits]) ++unit;
    if (unit == kUnits.size()) return std::nullopt;
    seconds += number * kUnits[unit++].second;
    text.remove_prefix(digits + 1);
  }
  return seconds;
}

// Parses Slurm's forms.
std::optional<int64_t> parse_slurm_time(absl::string_view text) {
  int64_t seconds = 0;
  const size_t dash = text.find('-');
  const bool has_days = dash != absl::string_view::npos;
  if (has_days) {
    int64_t days = 0;
    if (!parse_number(text.substr(0, dash), kTimeLimitSecondsMax / kDay, days)) return std::nullopt;
    seconds = days * kDay;
    text.remove_prefix(dash + 1);
  }
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() > 3) return std::nullopt;
  // The unit of the first part: hours behind days, and of three parts; otherwise minutes.
  int64_t unit = has_days || parts.size() == 3 ? kHour : kMinute;
  for (const std::string& part : parts) {
    int64_t number = 0;
    if (!parse_number(part, kTimeLimitSecondsMax, number)) return std::nullopt;
    seconds += number * unit;
    unit /= kMinute;
  }
  return seconds;
}

void replace_index(const std::string& number, std::string& text) {
  text = absl::StrReplaceAll(text, {{kArrayIndex, number}});
}

}  // namespace

absl::StatusOr<int64_t> parse_time(const std::string& option, const std::string& text) {
  std::optional<int64_t> seconds = parse_units(text);
  if (text.empty() || !seconds) seconds = parse_slurm_time(text);
  if (seconds && *seconds >= 1 && *seconds <= kTimeLimitSecondsMax) return *seconds;
  return wrong(option, text,
               "a time from 1 s to ten years: 2h, 1h30m, or in Slurm's forms MM, MM:SS, HH:MM:SS, "
               "D-HH, D-HH:MM, D-HH:MM:SS");
}

absl::StatusOr<ArrayTasks> parse_array(const std::string& text) {
  const auto refuse = [&] {
    return wrong(
        "--array", text,
        absl::StrCat("numbers and ranges from 0 to ", kArrayIndexMax, ", at most ", kTasksMax,
                     " tasks, like 0-9, 1,3,7 or 0-15:4; then optionally %N, "
                     "the number of tasks that may run at the same time"));
  };
  ArrayTasks tasks;
  absl::string_view list = text;
  if (const size_t percent = list.find('%'); percent != absl::string_view::npos) {
    int64_t most = 0;
    if (!parse_number(list.substr(percent + 1), kArrayIndexMax, most) || most < 1) return refuse();
    tasks.running_max = static_cast<int32_t>(most);
    list = list.substr(0, percent);
  }
  for (const absl::string_view item : absl::StrSplit(list, ',')) {
    const std::pair<absl::string_view, absl::string_view> range_and_step =
        absl::StrSplit(item, absl::MaxSplits(':', 1));
    const size_t dash = range_and_step.first.find('-');
    const bool is_range = dash != absl::string_view::npos;
    int64_t first = 0, last = 0, step = 1;
    if (!parse_number(range_and_step.first.substr(0, dash), kArrayIndexMax, first)) return refuse();
    last = first;
    if (is_range && !parse_number(range_and_step.first.substr(dash + 1), kArrayIndexMax, last))
      return refuse();
    if (absl::StrContains(item, ":") &&
        (!is_range || !parse_number(range_and_step.second, kArrayIndexMax, step) || step < 1))
      return refuse();
    if (last < first || (last - first) / step >= static_cast<int64_t>(kTasksMax)) return refuse();
    for (int64_t index = first; index <= last; index += step)
      tasks.indices.push_back(static_cast<int32_t>(index));
  }
  std::ranges::sort(tasks.indices);
  const auto repeated = std::ranges::unique(tasks.indices);
  tasks.indices.erase(repeated.begin(), repeated.end());
  if (tasks.indices.size() > kTasksMax) return refuse();
  return tasks;
}

absl::Status add_dependencies(const std::string& option, const std::string& jobs,
                              v1::Dependency::Kind kind, v1::JobSpec& spec) {
  for (const absl::string_view word : absl::StrSplit(jobs, ',')) {
    int64_t job = 0;
    if (!parse_number(word, INT64_MAX, job) || job < 1)
      return wrong(option, jobs, "numbers of jobs, separated by commas: 7,8");
    v1::Dependency& dependency = *spec.add_dependencies();
    dependency.set_job_id(static_cast<uint64_t>(job));
    dependency.set_kind(kind);
  }
  return absl::OkStatus();
}

absl::Status add_slurm_dependencies(const std::string& text, v1::JobSpec& spec) {
  const std::map<std::string, v1::Dependency::Kind> kinds = {
      {"afterok", v1::Dependency::AFTER_OK},
      {"afterany", v1::Dependency::AFTER_ANY},
      {"afternotok", v1::Dependency::AFTER_NOT_OK}};
  const auto refuse = [&] {
    return wrong(
        "--dependency", text,
        "afterok, afterany or afternotok with the numbers of jobs: afterok:7:8,afterany:9");
  };
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const size_t colon = part.find(':');
    const auto kind = kinds.find(part.substr(0, colon));
    if (kind == kinds.end() || colon == std::string::npos) return refuse();
    const std::string jobs = absl::StrReplaceAll(part.substr(colon + 1), {{":", ","}});
    if (!add_dependencies("--dependency", jobs, kind->second, spec).ok()) return refuse();
  }
  return absl::OkStatus();
}

void QueueOptions::declare(CLI::App& command) {
  const auto add = [&](const char* names, std::string& text, const char* type, const char* help) {
    command.add_option(names, text, help)->type_name(type)->group("Queue");
  };
  add("--after-ok", after_ok_, "JOB,…",
      "Start when these jobs have SUCCEEDED; if one ends otherwise, this job is CANCELLED");
  add("--after-any", after_any_, "JOB,…", "Start when these jobs have ended");
  add("--after-not-ok", after_not_ok_, "JOB,…",
      "Start when these jobs have FAILED or were CANCELLED; if one succeeds, this job is "
      "CANCELLED");
  add("--dependency", dependency_, "LIST", "The same in Slurm's form: afterok:7:8,afterany:9");
  add("--time-limit", time_limit_, "TIME",
      "The time for which the job may have ranks, over all attempts: 2h, 1h30m, or as in Slurm MM, "
      "HH:MM:SS, D-HH:MM:SS. Shortly before its end they save a checkpoint and leave, and the job "
      "FAILS with exit code 124. Jobs with a limit may start before larger ones that wait");
  add("--time-limit-notice", notice_, "TIME",
      "How long before the end of --time-limit the ranks receive SIGTERM. Default: as long as the "
      "job's saves need, if they are known; otherwise 30 s for programs and 2 minutes for the "
      "trainer, but at most half of the limit");
  add("--array", array_, "LIST",
      "Submit a job for each number: 0-9, 1,3,7, 0-15:4; with %3 at most 3 have ranks at the same "
      "time. Ranks have MUSTER_ARRAY_INDEX; {array_index} in key=value, --name and --output is "
      "replaced");
  daemon::add_list(command, "--select", selector_, "LABEL=VALUE",
                   "Run only on nodes with this label (muster-worker --label), or with "
                   "LABEL!=VALUE without it; may be repeated, and all must hold")
      ->group("Queue");
  daemon::add_list(command, "--tolerate", tolerations_, "TAINT=VALUE",
                   "May also run on nodes with this taint (muster-worker --taint); may be repeated")
      ->group("Queue");
}

absl::Status QueueOptions::apply(v1::JobSpec& spec) const {
  const auto add = [&](const char* option, const std::string& jobs, v1::Dependency::Kind kind) {
    return jobs.empty() ? absl::OkStatus() : add_dependencies(option, jobs, kind, spec);
  };
  absl::Status status = add("--after-ok", after_ok_, v1::Dependency::AFTER_OK);
  status.Update(add("--after-any", after_any_, v1::Dependency::AFTER_ANY));
  status.Update(add("--after-not-ok", after_not_ok_, v1::Dependency::AFTER_NOT_OK));
  if (!dependency_.empty()) status.Update(add_slurm_dependencies(dependency_, spec));
  for (const std::string& condition : selector_)
    status.Update(muster::check_condition("--select", condition));
  for (const std::string& taint : tolerations_) status.Update(check_label("--tolerate", taint));
  if (!status.ok()) return status;
  spec.mutable_node_selector()->Add(selector_.begin(), selector_.end());
  spec.mutable_tolerations()->Add(tolerations_.begin(), tolerations_.end());
  if (!time_limit_.empty()) {
    const auto seconds = parse_time("--time-limit", time_limit_);
    if (!seconds.ok()) return seconds.status();
    spec.set_time_limit_seconds(*seconds);
  }
  if (!notice_.empty()) {
    const auto seconds = parse_time("--time-limit-notice", notice_);
    if (!seconds.ok()) return seconds.status();
    if (*seconds >= spec.time_limit_seconds())
      return wrong("--time-limit-notice", notice_, "less than --time-limit");
    spec.set_time_limit_notice_seconds(*seconds);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ArrayTasks>> QueueOptions::array() const {
  if (array_.empty()) return std::nullopt;
  auto tasks = parse_array(array_);
  if (!tasks.ok()) return tasks.status();
  return std::optional(*std::move(tasks));
}

absl::StatusOr<JobArguments> arguments_of_task(JobArguments arguments, const std::string& array,
                                               int32_t index) {
  const std::string number = absl::StrCat(index);
  const auto name = [&](std::string& text) {
    if (absl::StrContains(text, kArrayIndex)) return replace_index(number, text);
    absl::StrAppend(&text, "-", number);
  };
  if (!arguments.output_directory.empty() &&
      !absl::StrContains(arguments.output_directory, kArrayIndex)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--output ", printable(arguments.output_directory, kShownMax),
                     ": with --array it must contain {array_index}, because each task writes to a "
                     "folder of its own"));
  }
  replace_index(number, arguments.output_directory);
  if (!arguments.name.empty()) name(arguments.name);
  for (std::string& word : arguments.overrides) {
    if (absl::StartsWith(word, "run_name="))
      name(word);
    else
      replace_index(number, word);
  }
  arguments.default_name = absl::StrCat("array-", array, "-", number);
  return arguments;
}

}  // namespace muster::cli
