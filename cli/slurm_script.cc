#include "cli/slurm_script.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

#include "common/escape.h"

namespace muster::cli {
namespace {

bool is_plain(const std::string& word) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  return !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
}

// As sbatch reads its lines: quotes take what is between them, and a backslash what follows it.
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

absl::StatusOr<std::string> slurm_script(const ScriptPlan& plan) {
  for (const std::string* text : {&plan.job_name, &plan.account, &plan.partition, &plan.qos,
                                  &plan.time, &plan.dependency, &plan.output_folder}) {
    if (has_line_end(*text)) {
      return absl::InvalidArgumentError(
          absl::StrCat(printable(*text, 100), ": sbatch takes one line of it"));
    }
  }
  std::string script =
      "#!/bin/bash\n"
      "# By muster slurm submit. sbatch takes it again, too, and the run goes on from its newest "
      "checkpoint.\n";
  add(script, "--job-name", plan.job_name);
  add(script, "--account", plan.account);
  add(script, "--partition", plan.partition);
  add(script, "--qos", plan.qos);
  add(script, "--time", plan.time);
  add(script, "--dependency", plan.dependency);
  add(script, "--nodes", absl::StrCat(plan.nodes));
  if (plan.gpus_per_node > 0) add(script, "--gpus-per-node", absl::StrCat(plan.gpus_per_node));
  if (plan.exclusive) absl::StrAppend(&script, "#SBATCH --exclusive\n");
  absl::StrAppend(&script, "#SBATCH --requeue\n#SBATCH --open-mode=append\n");
  if (plan.keeps_failed_nodes) absl::StrAppend(&script, "#SBATCH --no-kill\n");
  if (plan.signal_seconds > 0)
    absl::StrAppend(&script, "#SBATCH --signal=B:USR1@", plan.signal_seconds, "\n");
  if (plan.chain > 1) absl::StrAppend(&script, "#SBATCH --array=1-", plan.chain, "%1\n");
  // A percent sign of the folder is none of sbatch's own.
  add(script, "--output",
      absl::StrReplaceAll(plan.output_folder, {{"%", "%%"}}) +
          (plan.chain > 1 ? "/slurm-%A_%a.out" : "/slurm-%j.out"));
  for (const std::string& option : plan.more) {
    if (has_line_end(option))
      return absl::InvalidArgumentError(
          absl::StrCat("--sbatch ", printable(option, 100), ": one line is wanted"));
    absl::StrAppend(&script, "#SBATCH ", option, "\n");
  }
  absl::StrAppend(&script, "\nexec");
  for (const std::string& word : plan.command) absl::StrAppend(&script, " ", shell_word(word));
  return script + "\n";
}

}  // namespace muster::cli
