#include "cli/slurm/slurm_script.h"

#include <algorithm>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>

#include "common/text/escape.h"

namespace muster::cli {
namespace {

bool is_plain(const std::string& word) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  return !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
}

// Quotes a word for a script line as sbatch parses it: quotes group characters, and a backslash
// escapes the next one.
std::string sbatch_word(const std::string& word) {
  if (is_plain(word)) return word;
  return absl::StrCat("\"", absl::StrReplaceAll(word, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

void add(std::string& script, const std::string& option, const std::string& value) {
  if (!value.empty()) absl::StrAppend(&script, "#SBATCH ", option, "=", sbatch_word(value), "\n");
}

bool has_line_end(const std::string& text) {
  return text.find_first_of(std::string("\n\r\0", 3)) != std::string::npos;
}

}  // namespace

std::string shell_word(const std::string& word) {
  if (is_plain(word)) return word;
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

std::optional<int64_t> limit_seconds(const std::string& time) {
  constexpr int64_t kMinute = 60, kHour = 3600, kDay = 86'400, kPartMax = 1'000'000;
  const size_t dash = time.find('-');
  const bool has_days = dash != std::string::npos;
  const std::vector<std::string> parts = absl::StrSplit(time.substr(has_days ? dash + 1 : 0), ':');
  std::vector<int64_t> numbers;
  if (has_days && !absl::SimpleAtoi(time.substr(0, dash), &numbers.emplace_back()))
    return std::nullopt;
  for (const std::string& part : parts)
    if (!absl::SimpleAtoi(part, &numbers.emplace_back())) return std::nullopt;
  std::vector<int64_t> units = {kMinute, 1};
  if (has_days) units = {kDay, kHour, kMinute, 1};
  if (!has_days && parts.size() == 3) units = {kHour, kMinute, 1};
  if (numbers.size() > units.size()) return std::nullopt;
  int64_t seconds = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] < 0 || numbers[i] > kPartMax) return std::nullopt;
    seconds += numbers[i] * units[i];
  }
  return seconds == 0 ? std::nullopt : std::optional(seconds);  // 0 means no limit for sbatch
}

int32_t signal_lead(int32_t requested_seconds, const std::string& time) {
  const auto limit = limit_seconds(time);
  return limit ? static_cast<int32_t>(std::min<int64_t>(requested_seconds, *limit / 4))
               : requested_seconds;
}

absl::StatusOr<std::vector<std::string>> split_sbatch_line(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool is_word = false;
  char quote = '\0';
  for (size_t i = 0; i <= line.size(); ++i) {
    const char c = i < line.size() ? line[i] : '\n';
    const bool is_end = absl::ascii_isspace(static_cast<unsigned char>(c)) || c == '#';
    if (quote == '\0' && is_end) {
      if (is_word) words.push_back(std::exchange(word, ""));
      is_word = false;
      if (c == '#') break;  // a comment, also in the middle of a word
      continue;
    }
    if (i == line.size())
      return absl::InvalidArgumentError(
          absl::StrCat("--sbatch ", printable(line, 100), ": unclosed quote"));
    is_word = true;
    if (c == '\\') {
      if (i + 1 < line.size()) word += line[++i];
    } else if (c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '"' || c == '\'')) {
      quote = c;
    } else {
      word += c;
    }
  }
  return words;
}

absl::StatusOr<std::vector<std::string>> sbatch_command(const ScriptPlan& plan,
                                                        const std::string& path) {
  std::vector<std::string> words = {"sbatch", "--parsable"};
  const auto add_option = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.push_back(absl::StrCat(name, "=", value));
  };
  add_option("--job-name", plan.job_name);
  add_option("--account", plan.account);
  add_option("--partition", plan.partition);
  add_option("--qos", plan.qos);
  add_option("--time", plan.time);
  add_option("--dependency", plan.dependency);
  for (const std::string& option : plan.more) {
    const auto more = split_sbatch_line(option);
    if (!more.ok()) return more.status();
    words.insert(words.end(), more->begin(), more->end());
  }
  words.push_back(path);
  return words;
}

absl::StatusOr<std::string> slurm_script(const ScriptPlan& plan) {
  for (const std::string* text : {&plan.job_name, &plan.account, &plan.partition, &plan.qos,
                                  &plan.time, &plan.dependency, &plan.output_folder}) {
    if (has_line_end(*text)) {
      return absl::InvalidArgumentError(
          absl::StrCat(printable(*text, 100), ": must be a single line for sbatch"));
    }
  }
  std::string script =
      "#!/bin/bash\n# By muster slurm submit. Submit it again with sbatch to resume the run from "
      "its newest checkpoint.\n";
  add(script, "--job-name", plan.job_name);
  add(script, "--account", plan.account);
  add(script, "--partition", plan.partition);
  add(script, "--qos", plan.qos);
  add(script, "--time", plan.time);
  add(script, "--dependency", plan.dependency);
  add(script, "--nodes", absl::StrCat(plan.nodes));
  if (plan.gpus_per_node > 0) add(script, "--gpus-per-node", absl::StrCat(plan.gpus_per_node));
  if (plan.exclusive) {
    // Overrides a site's default memory per processor, which would also apply to whole nodes.
    absl::StrAppend(&script, "#SBATCH --exclusive\n#SBATCH --mem=0\n");
  } else if (plan.tasks_per_node > 0) {
    add(script, "--ntasks-per-node", absl::StrCat(plan.tasks_per_node));
  }
  absl::StrAppend(&script, "#SBATCH --requeue\n#SBATCH --open-mode=append\n");
  if (plan.keeps_failed_nodes) absl::StrAppend(&script, "#SBATCH --no-kill\n");
  if (plan.signal_seconds > 0)
    absl::StrAppend(&script, "#SBATCH --signal=B:USR1@", plan.signal_seconds, "\n");
  if (plan.chain > 1) absl::StrAppend(&script, "#SBATCH --array=1-", plan.chain, "%1\n");
  // Escapes percent signs of the folder, which sbatch would expand.
  add(script, "--output",
      absl::StrReplaceAll(plan.output_folder, {{"%", "%%"}}) +
          (plan.chain > 1 ? "/slurm-%A_%a.out" : "/slurm-%j.out"));
  for (const std::string& option : plan.more) {
    if (has_line_end(option))
      return absl::InvalidArgumentError(
          absl::StrCat("--sbatch ", printable(option, 100), ": must be a single line"));
    if (auto words = split_sbatch_line(option); !words.ok()) return words.status();
    absl::StrAppend(&script, "#SBATCH ", option, "\n");
  }
  absl::StrAppend(&script, "\nexec");
  for (const std::string& word : plan.command) absl::StrAppend(&script, " ", shell_word(word));
  return script + "\n";
}

}  // namespace muster::cli
