#include "jobspec/dialects/variables.h"

#include <algorithm>
#include <set>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"
#include "jobspec/dialects/flag_table.h"
#include "jobspec/dialects/launcher.h"
#include "jobspec/files/value.h"

namespace muster::jobspec {
namespace {

constexpr std::string_view kPax = "Pax's scripts";
constexpr std::string_view kAllScripts = "MaxText's and Pax's scripts";
constexpr std::string_view kMaxTextScript = "MaxText's example_slurm.sub";
constexpr std::string_view kRecipe = "the Llama 2 70B recipe";
constexpr std::string_view kPaxLines = "Pax's lines; slurm/*.sub";
constexpr std::string_view kWrappers = "slurm/*.sub";
constexpr std::string_view kAllLines = "all lines; slurm/*.sub";
constexpr std::string_view kRecipeScripts = "slurm/setup.sh, slurm/launch.sh";
constexpr std::string_view kNoTe =
    "no effect: there is no Transformer Engine here; attention is always blocked flash";
constexpr std::string_view kNoXla = "no effect: there is no XLA here";
constexpr std::string_view kRankOptions = "--ranks, or --nodes and --ranks-per-node";

// clang-format off
constexpr Variable kVariables[] = {
    {"CONFIG", kPax, "model_name: the experiment, for example GPT126M or Synthetic5B", kPaxLines, "model_name"},
    {"MODEL", "Muster", "model_name of MaxText's wrapper (llama2-7b)", "slurm/example_slurm.sub", "model_name"},
    {"RUN_NAME", "Muster", "run_name of MaxText's wrapper (the Slurm job's name and number)", "slurm/example_slurm.sub", "run_name"},
    {"PREC", kPax, "dtype: bfloat16 or float32", kPaxLines, "dtype"},
    {"DTYPE", kRecipe, "bf16 or fp8: dtype and quantization", "slurm/launch.sh", "dtype, or quantization=fp8"},
    {"ENABLE_FP8", kAllScripts, "1: quantization=fp8", kPaxLines, "quantization=fp8"},
    {"ENABLE_TE", kAllScripts, kNoTe, kPaxLines, ""},
    {"PERCORE_BATCH_SIZE", kPax, "per_device_batch_size", kPaxLines, "per_device_batch_size"},
    {"LOG_DIR", kPax, "base_output_directory/run_name, below BASE_WORKSPACE_DIR if relative", kPaxLines, "base_output_directory and run_name"},
    {"LOG_DIR_LOCAL", kAllScripts, "the same as LOG_DIR", kPaxLines, "base_output_directory and run_name"},
    {"BASE_WORKSPACE_DIR", kAllScripts, "parent of a relative LOG_DIR and OUTPUT_DIR", kPaxLines, "base_output_directory"},
    {"OUTPUT_DIR", kAllScripts, "folder of the ranks' output; on a line it has no effect: the job's logs have it", kPaxLines, "muster logs"},
    {"TFDS_DATA_DIR", kPax, "dataset_path: a data folder of TFDS, text, or token shards", kPaxLines, "dataset_path"},
    {"BASE_TFDS_DATA_DIR", kAllScripts, "the same as TFDS_DATA_DIR", kPaxLines, "dataset_path"},
    {"VOCAB_PATH", kPax, "tokenizer_path", kPaxLines, "tokenizer_path"},
    {"BASE_VOCAB_PATH", kAllScripts, "the same as VOCAB_PATH", kPaxLines, "tokenizer_path"},
    {"CHECKPOINT_RESTORE_PATH", kPax, "load_parameters_path", kPaxLines, "load_parameters_path"},
    {"BASE_CHECKPOINT_RESTORE_PATH", kPax, "the same as CHECKPOINT_RESTORE_PATH", kPaxLines, "load_parameters_path"},
    {"BASE_CHECKPOINT_DIR", kPax, "an older name of BASE_CHECKPOINT_RESTORE_PATH", kWrappers, "load_parameters_path"},
    {"NUM_GPUS", kPax, "no effect: --ranks, or --nodes and --ranks-per-node, set the number of ranks", kPaxLines, kRankOptions},
    {"GPUS_PER_NODE", kAllScripts, "ranks per node of a wrapper (8); on a line --ranks-per-node", kPaxLines, kRankOptions},
    {"CONTAINER", kAllScripts, "image of workers and ranks, with pyxis", kPaxLines, "--container of muster slurm run"},
    {"EVAL_ONLY", kPax, "1: eval_only; eval_tasks=boolq=FILE adds the accuracy of answers", kPaxLines, "eval_only"},
    {"USE_LORA", kPax, "1: enable_lora", kPaxLines, "enable_lora"},
    {"LORA_RANK", kPax, "lora_rank", kPaxLines, "lora_rank"},
    {"LORA_TARGET_LAYERS", kPax, "lora_targets: all, attention or mlp", kPaxLines, "lora_targets"},
    {"BASE_XLA_FLAGS", kPax, kNoXla, kAllLines, ""},
    {"XLA_*", "JAX", kNoXla, kAllLines, ""},
    {"LIBTPU_INIT_ARGS", "JAX", "no effect: there are no TPUs here", "all lines", ""},
    {"NVTE_*", "Transformer Engine", kNoTe, kAllLines, ""},
    {"NCCL_*", "NCCL", "goes to the ranks, whose NCCL reads it", kAllLines, ""},
    {"MAXTEXT_DIR", kMaxTextScript, "no effect: nothing here needs it", kWrappers, ""},
    {"PAXML_DIR", kPax, "no effect: nothing here needs it", kWrappers, ""},
    {"BASE_SCRIPT", kPax, "no effect: the training command is in the script", kWrappers, ""},
    {"STAGE_PATH", kRecipe, "folder of the recipe's files and results", kRecipeScripts, "base_output_directory"},
    {"GSW_VERSION", kRecipe, "names the folder of the results (25.02)", "slurm/launch.sh", "run_name"},
    {"JOB_TOTAL_GPUS", kRecipe, "names the folder of the results (nodes times ranks per node)", "slurm/launch.sh", kRankOptions},
    {"M_<KEY>", "MaxText", "the key in lower case: M_STEPS=9 is steps=9", "all lines; slurm/*.sub", ""},
    {"MUSTER_BIN_DIR", "Muster", "folder of Muster's programs", "muster; slurm/*.sub, slurm/*.sh", ""},
    {"MUSTER_OBJECT_CACHE", "Muster", "folder for local copies of s3:// and gs:// objects (~/.cache/muster/objects)", "muster; workers and ranks", ""},
    {"MUSTER_STORE_WAIT_SECONDS", "Muster", "how long a command waits for a store that does not answer (60)", "muster; workers and ranks", ""},
    {"MUSTER_TOKEN_CACHE", "Muster", "folder for the shards of text that a run tokenizes (.muster-tokens beside the text)", "muster run, submit", ""},
    {"MUSTER_COORDINATOR", "Muster", "--coordinator", "muster submit, status, …; slurm/fleet.sub", ""},
    {"MUSTER_TLS_CA", "Muster", "--tls-ca", "muster submit, status, …; slurm/fleet.sub", ""},
    {"MUSTER_TLS_CERT", "Muster", "--tls-cert", "muster submit, status, …; slurm/fleet.sub", ""},
    {"MUSTER_TLS_KEY", "Muster", "--tls-key", "muster submit, status, …; slurm/fleet.sub", ""},
    {"MUSTER_TOKEN_FILE", "Muster", "--token-file", "muster submit, status, …; slurm/fleet.sub", ""},
    {"MUSTER_WORKER_TOKEN_FILE", "Muster", "--worker-token-file", "muster slurm fleet; slurm/fleet.sub", ""},
};
// clang-format on

const Flag* find_pax_variable(std::string_view name) {
  const auto rows = pax_variables();
  const auto found = std::ranges::find(rows, name, &Flag::name);
  return found == rows.end() ? nullptr : &*found;
}

const Variable* find_variable(std::string_view name) {
  const auto found = std::ranges::find(kVariables, name, &Variable::name);
  return found == std::end(kVariables) ? nullptr : &*found;
}

// True if a line of Pax reads the variable, on the line or exported.
bool is_of_pax_lines(std::string_view name) { return find_pax_variable(name) != nullptr; }

// True if every line reads the variable: M_STEPS, NCCL_DEBUG, MUSTER_COORDINATOR.
bool is_of_all_lines(std::string_view name) {
  return name.starts_with("M_") || name.starts_with("NCCL_") || name.starts_with("MUSTER_");
}

// True if the variable requires something that is off without it.
bool is_switched_off(std::string_view name, const std::string& value) {
  static constexpr std::string_view kSwitches[] = {"ENABLE_FP8", "ENABLE_TE", "EVAL_ONLY",
                                                   "USE_LORA"};
  return std::ranges::find(kSwitches, name) != std::end(kSwitches) &&
         (value == "0" || absl::EqualsIgnoreCase(value, "false"));
}

// Returns why the variable has no effect, and the key that has its meaning.
std::string why_unread(const Variable& row) {
  if (row.instead.empty()) return std::string(absl::StripPrefix(av(row.meaning), "no effect: "));
  return absl::StrCat("it is for ",
                      absl::StrReplaceAll(av(row.read_by), {{"; ", " and "}, {", ", " and "}}),
                      "; here it is ", av(row.instead));
}

}  // namespace

std::span<const Variable> variables() { return kVariables; }

std::vector<std::string> exported_words(const Environment& environment,
                                        const std::vector<std::string>& words) {
  std::set<std::string> named;
  for (const std::string& word : words) named.insert(word.substr(0, word.find('=')));
  std::vector<std::string> exported;
  for (const auto& [name, value] : environment) {
    if (is_of_pax_lines(name) && !value.empty() && !named.contains(name) &&
        why_without_effect(name).empty())
      exported.push_back(absl::StrCat(name, "=", value));
  }
  return exported;
}

std::vector<std::string> exported_without_effect(const Environment& environment, Dialect dialect) {
  std::vector<std::string> warnings;
  for (const auto& [name, value] : environment) {
    if (value.empty() || is_switched_off(name, value)) continue;
    std::string why(why_without_effect(name));
    const Variable* row = find_variable(name);
    if (why.empty() && row != nullptr && !is_of_all_lines(name) &&
        !(dialect == Dialect::kPax && is_of_pax_lines(name)))
      why = why_unread(*row);
    if (!why.empty())
      warnings.push_back(absl::StrCat(name, "=", show(value), " has no effect: ", why));
  }
  return warnings;
}

absl::Status check_no_variable(const std::string& name, const std::string& value) {
  const Variable* row = find_variable(name);
  if (row == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, "=", show(value), ": ",
                                                 row->instead.empty() ? "leave it out: " : "",
                                                 why_unread(*row)));
}

}  // namespace muster::jobspec
