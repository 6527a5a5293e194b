#include "jobspec/variables.h"

#include <algorithm>
#include <set>

#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "jobspec/flag_table.h"
#include "jobspec/launcher.h"
#include "jobspec/value.h"

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
constexpr std::string_view kUnbuilt = "not built yet: this version trains all parameters";

// clang-format off
constexpr Variable kVariables[] = {
    {"CONFIG", kPax, "model_name: the experiment, for example GPT126M or Synthetic5B", kPaxLines},
    {"MODEL", "Muster", "model_name of MaxText's wrapper (llama2-7b)", "slurm/example_slurm.sub"},
    {"RUN_NAME", "Muster", "run_name of MaxText's wrapper (the Slurm job's name and number)", "slurm/example_slurm.sub"},
    {"PREC", kPax, "dtype: bfloat16 or float32", kPaxLines},
    {"DTYPE", kRecipe, "bf16 or fp8: dtype and quantization", "slurm/launch.sh"},
    {"ENABLE_FP8", kAllScripts, "1: quantization=fp8", kPaxLines},
    {"ENABLE_TE", kAllScripts, kNoTe, kPaxLines},
    {"PERCORE_BATCH_SIZE", kPax, "per_device_batch_size", kPaxLines},
    {"LOG_DIR", kPax, "base_output_directory/run_name, below BASE_WORKSPACE_DIR if relative", kPaxLines},
    {"LOG_DIR_LOCAL", kAllScripts, "the same as LOG_DIR", kPaxLines},
    {"BASE_WORKSPACE_DIR", kAllScripts, "parent of a relative LOG_DIR and OUTPUT_DIR", kPaxLines},
    {"OUTPUT_DIR", kAllScripts, "folder of the ranks' output; on a line it has no effect: the job's logs have it", kPaxLines},
    {"TFDS_DATA_DIR", kPax, "dataset_path: a folder of shards", kPaxLines},
    {"BASE_TFDS_DATA_DIR", kAllScripts, "the same as TFDS_DATA_DIR", kPaxLines},
    {"VOCAB_PATH", kPax, "tokenizer_path", kPaxLines},
    {"BASE_VOCAB_PATH", kAllScripts, "the same as VOCAB_PATH", kPaxLines},
    {"CHECKPOINT_RESTORE_PATH", kPax, "load_parameters_path", kPaxLines},
    {"BASE_CHECKPOINT_RESTORE_PATH", kPax, "the same as CHECKPOINT_RESTORE_PATH", kPaxLines},
    {"BASE_CHECKPOINT_DIR", kPax, "an older name of BASE_CHECKPOINT_RESTORE_PATH", kWrappers},
    {"NUM_GPUS", kPax, "no effect: --ranks, or --nodes and --ranks-per-node, set the number of ranks", kPaxLines},
    {"GPUS_PER_NODE", kAllScripts, "ranks per node of a wrapper (8); on a line --ranks-per-node", kPaxLines},
    {"CONTAINER", kAllScripts, "image of workers and ranks, with pyxis", kPaxLines},
    {"EVAL_ONLY", kPax, "not built yet: evaluation without training", kPaxLines},
    {"USE_LORA", kPax, kUnbuilt, kPaxLines},
    {"LORA_RANK", kPax, kUnbuilt, kPaxLines},
    {"LORA_TARGET_LAYERS", kPax, kUnbuilt, kPaxLines},
    {"BASE_XLA_FLAGS", kPax, kNoXla, kAllLines},
    {"XLA_*", "JAX", kNoXla, kAllLines},
    {"LIBTPU_INIT_ARGS", "JAX", "no effect: there are no TPUs here", "all lines"},
    {"NVTE_*", "Transformer Engine", kNoTe, kAllLines},
    {"NCCL_*", "NCCL", "goes to the ranks, whose NCCL reads it", kAllLines},
    {"MAXTEXT_DIR", kMaxTextScript, "no effect: nothing here needs it", kWrappers},
    {"PAXML_DIR", kPax, "no effect: nothing here needs it", kWrappers},
    {"BASE_SCRIPT", kPax, "no effect: the training command is in the script", kWrappers},
    {"STAGE_PATH", kRecipe, "folder of the recipe's files and results", kRecipeScripts},
    {"GSW_VERSION", kRecipe, "names the folder of the results (25.02)", "slurm/launch.sh"},
    {"JOB_TOTAL_GPUS", kRecipe, "names the folder of the results (nodes times ranks per node)", "slurm/launch.sh"},
    {"M_<KEY>", "MaxText", "the key in lower case: M_STEPS=9 is steps=9", "all lines; slurm/*.sub"},
    {"MUSTER_BIN_DIR", "Muster", "folder of Muster's programs", "muster; slurm/*.sub, slurm/*.sh"},
    {"MUSTER_OBJECT_CACHE", "Muster", "folder for local copies of s3:// and gs:// objects (~/.cache/muster/objects)", "muster; workers and ranks"},
    {"MUSTER_COORDINATOR", "Muster", "--coordinator", "muster submit, status, …; slurm/fleet.sub"},
    {"MUSTER_TLS_CA", "Muster", "--tls-ca", "muster submit, status, …; slurm/fleet.sub"},
    {"MUSTER_TLS_CERT", "Muster", "--tls-cert", "muster submit, status, …; slurm/fleet.sub"},
    {"MUSTER_TLS_KEY", "Muster", "--tls-key", "muster submit, status, …; slurm/fleet.sub"},
    {"MUSTER_TOKEN_FILE", "Muster", "--token-file", "muster submit, status, …; slurm/fleet.sub"},
    {"MUSTER_WORKER_TOKEN_FILE", "Muster", "--worker-token-file", "muster slurm fleet; slurm/fleet.sub"},
};
// clang-format on

const Flag* pax_variable(std::string_view name) {
  const auto rows = pax_variables();
  const auto found = std::ranges::find(rows, name, &Flag::name);
  return found == rows.end() ? nullptr : &*found;
}

// A variable that the wrappers in slurm/ read themselves, or that names a place of the other
// program: exported, it is no request of this line.
bool is_of_scripts(std::string_view name) {
  static constexpr std::string_view kNames[] = {"CONTAINER", "OUTPUT_DIR", "NUM_GPUS",
                                                "GPUS_PER_NODE"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

// The key that has the meaning of a script's variable on lines of MaxText and AXLearn.
std::string_view key_instead(std::string_view name) {
  if (name == "PREC") return "dtype";
  if (name == "PERCORE_BATCH_SIZE") return "per_device_batch_size";
  if (name == "ENABLE_FP8") return "quantization=fp8";
  return "";
}

}  // namespace

std::span<const Variable> variables() { return kVariables; }

std::vector<std::string> exported_words(const Environment& environment,
                                        const std::vector<std::string>& words) {
  std::set<std::string> named;
  for (const std::string& word : words) named.insert(word.substr(0, word.find('=')));
  std::vector<std::string> exported;
  for (const auto& [name, value] : environment) {
    const Flag* flag = pax_variable(name);
    if (flag == nullptr || value.empty() || is_of_scripts(name) || named.contains(name) ||
        !why_without_effect(name).empty())
      continue;
    // A workspace alone changes nothing.
    if (flag->effect == FlagEffect::kPaxWorkspace && !named.contains("LOG_DIR") &&
        !named.contains("LOG_DIR_LOCAL") &&
        std::ranges::none_of(environment, [](const auto& variable) {
          return variable.first == "LOG_DIR" || variable.first == "LOG_DIR_LOCAL";
        }))
      continue;
    exported.push_back(absl::StrCat(name, "=", value));
  }
  return exported;
}

std::vector<std::string> exported_without_effect(const Environment& environment, Dialect dialect) {
  std::vector<std::string> warnings;
  for (const auto& [name, value] : environment) {
    if (value.empty()) continue;
    if (const std::string_view why = why_without_effect(name); !why.empty()) {
      warnings.push_back(absl::StrCat(name, "=", show(value), " has no effect: ", av(why)));
      continue;
    }
    if (name == "ENABLE_TE" && dialect != Dialect::kPax && value != "0") {
      warnings.push_back(absl::StrCat(
          name, "=", show(value), " has no effect: ", av(why_without_effect("NVTE_FUSED_ATTN"))));
      continue;
    }
    const std::string_view instead = dialect == Dialect::kPax ? "" : key_instead(name);
    if (instead.empty() || (name == "ENABLE_FP8" && value == "0")) continue;
    warnings.push_back(absl::StrCat(name, "=", show(value),
                                    " has no effect: only lines of Pax read it; here it is ",
                                    av(instead)));
  }
  return warnings;
}

}  // namespace muster::jobspec
