// muster decode: generates text from a run's newest checkpoint. The model runs in muster-trainer,
// which replaces this process.
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/jobs/job_arguments.h"
#include "cli/run/exec_trainer.h"
#include "cli/terminal/terminal.h"
#include "common/job/mesh.h"
#include "common/objects/object_url.h"
#include "daemon/help.h"
#include "trainer_core/base/best_path.h"
#include "trainer_core/base/mesh_rules.h"

namespace muster::cli {
namespace {

struct DecodeArguments {
  JobArguments job;
  std::string run;
  std::optional<std::string> prompt;
  std::optional<std::string> prompts;
  std::optional<std::string> tokenizer;
  std::optional<int32_t> max_tokens;
  std::optional<double> temperature;
  std::optional<int32_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<std::string> stop;
  std::optional<int64_t> seed;
  bool int8_cache = false;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> length;
  std::vector<std::string> adapters;
  std::optional<int32_t> tensor_parallel;
  std::optional<std::string> hardware;
  bool add_bos = false;
  bool json = false;
};

// Options of muster-trainer decode: `--name` and value. The user's flags override the config.
using Options = std::map<std::string, std::string>;

std::string setting(const jobspec::Config& config, std::string_view key) {
  const auto found = config.settings.find(key);
  if (found == config.settings.end()) return "";
  return found->second.value.is_string() ? found->second.value.get<std::string>()
                                         : found->second.value.dump();
}

// Converts MaxText's decode_sampling_* keys to the trainer's options.
absl::Status add_sampling(const jobspec::Config& config, Options& options) {
  const std::string strategy = setting(config, "decode_sampling_strategy");
  if (strategy == "greedy" || strategy.empty()) return absl::OkStatus();
  const auto add = [&](const char* name, std::string_view key) {
    options[name] = setting(config, key);
  };
  if (strategy != "weighted" && strategy != "topk" && strategy != "nucleus") {
    return absl::InvalidArgumentError(absl::StrCat("decode_sampling_strategy=", strategy,
                                                   ": expected greedy, weighted, topk or nucleus"));
  }
  add("--temperature", "decode_sampling_temperature");
  if (strategy == "topk") add("--top-k", "decode_sampling_top_k");
  if (strategy == "nucleus") add("--top-p", "decode_sampling_nucleus_p");
  return absl::OkStatus();
}

// Converts the keys of the device and of the mesh. The mesh is that of the training: on a GPU, one
// process computes the model.
void add_devices(const jobspec::Config& config, const MeshShape& mesh,
                 const DecodeArguments& arguments, Options& options) {
  const auto hardware = config.settings.find("hardware");
  if (hardware != config.settings.end() && jobspec::is_of_user(hardware->second))
    options["--hardware"] = setting(config, "hardware");
  if (arguments.hardware) options["--hardware"] = *arguments.hardware;
  const auto axis = static_cast<size_t>(MeshAxis::kTensor);
  if (mesh.dcn[axis] > 1) {
    warn(absl::StrCat("dcn_tensor_parallelism=", mesh.dcn[axis],
                      " has no effect: decode runs on one machine"));
  }
  const auto chosen = options.find("--hardware");
  if (chosen == options.end() || chosen->second == "cpu")
    options["--tensor-parallel"] = absl::StrCat(mesh.ici[axis]);
}

absl::Status add_run(const DecodeArguments& arguments, Options& options) {
  if (!arguments.run.empty()) {
    if (!arguments.job.config_path.empty()) {
      return absl::InvalidArgumentError(
          "--run and a config file both name a model to decode from; give one of them");
    }
    if (!arguments.prompt && !arguments.prompts)
      return absl::InvalidArgumentError("--run needs a --prompt, or a file of --prompts");
    if (is_remote(arguments.run) || trainer::names_best(arguments.run)) {
      options["--checkpoint"] = arguments.run;
      return absl::OkStatus();
    }
    const std::string checkpoints = absl::StrCat(arguments.run, "/checkpoints");
    if (std::error_code error; !std::filesystem::is_directory(checkpoints, error)) {
      return absl::NotFoundError(
          absl::StrCat("--run ", arguments.run,
                       std::filesystem::exists(arguments.run, error)
                           ? ": no folder checkpoints in it; give base_output_directory/run_name, "
                             "or a folder made by muster convert"
                           : ": no such folder; give base_output_directory/run_name"));
    }
    options["--checkpoint"] = checkpoints;
    return absl::OkStatus();
  }
  if (arguments.job.config_path.empty()) {
    return absl::InvalidArgumentError(
        "nothing to decode from: give --run DIR, or a config file with the run's keys");
  }
  std::error_code error;
  if (std::filesystem::is_directory(arguments.job.config_path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        arguments.job.config_path, " is a folder; if it is a run's or a converted model's: --run ",
        arguments.job.config_path));
  }
  const auto config = load_config(arguments.job);
  if (!config.ok()) return config.status();
  const auto job = resolve_job(*config, arguments.job);
  if (!job.ok()) return job.status();
  if (job->train.tokenizer_path.empty() && !arguments.tokenizer) {
    return absl::InvalidArgumentError(
        "tokenizer_path is empty: set it to the run's tokenizer, or give --tokenizer FILE");
  }
  auto file = in_memory_file(job->spec.train_config_json());
  if (!file.ok()) return file.status();
  for (const std::string& warning : job->warnings) warn(warning);
  options["--config"] = *std::move(file);
  options["--prompt"] = setting(*config, "prompt");
  add_devices(*config, job->train.mesh, arguments, options);
  if (setting(*config, "quantize_kvcache") == "true") options["--kv-cache"] = "int8";
  // As in MaxText's decode.py: these parameters, not the newest of the run.
  const std::string& parameters = job->train.load_parameters_path;
  if (!parameters.empty()) options["--checkpoint"] = parameters;
  return add_sampling(*config, options);
}

int decode(const DecodeArguments& arguments) {
  Options options;
  if (auto status = add_run(arguments, options); !status.ok()) return fail(status);
  const auto add = [&](const char* name, const auto& value) {
    if (value) options[name] = absl::StrCat(*value);
  };
  add("--prompt", arguments.prompt);
  add("--prompts", arguments.prompts);
  add("--tokenizer", arguments.tokenizer);
  add("--max-tokens", arguments.max_tokens);
  add("--temperature", arguments.temperature);
  add("--top-k", arguments.top_k);
  add("--top-p", arguments.top_p);
  add("--min-p", arguments.min_p);
  add("--repetition-penalty", arguments.repetition_penalty);
  add("--stop", arguments.stop);
  add("--seed", arguments.seed);
  if (arguments.int8_cache) options["--kv-cache"] = "int8";
  add("--bos-id", arguments.bos_id);
  add("--length", arguments.length);
  add("--tensor-parallel", arguments.tensor_parallel);
  add("--hardware", arguments.hardware);
  if (!arguments.adapters.empty())
    options["--adapters"] = nlohmann::json(arguments.adapters).dump();
  std::vector<std::string> words = {"decode"};
  for (const auto& [name, value] : options) words.insert(words.end(), {name, value});
  if (arguments.add_bos) words.push_back("--add-bos");
  if (arguments.json) words.push_back("--json");
  return fail(exec_trainer(std::move(words)));
}

}  // namespace

void declare_decode(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<DecodeArguments>();
  CLI::App* command = app.add_subcommand("decode", "Continue a prompt with a trained model");
  add_config_arguments(*command, arguments->job, false);
  command
      ->add_option("--run", arguments->run,
                   "A run's output folder, base_output_directory/run_name; with /best behind it, "
                   "the checkpoint of its best evaluation")
      ->type_name("DIR");
  command->add_option("--prompt", arguments->prompt, "The beginning of the text")
      ->type_name("TEXT");
  command
      ->add_option("--prompts", arguments->prompts,
                   "A file with a prompt per line; all of them are computed together. A line of "
                   "FILE.jsonl is an object with \"prompt\", and may have \"seed\", \"stop\" and "
                   "\"adapter\"")
      ->type_name("FILE")
      ->excludes("--prompt");
  command
      ->add_option("--tokenizer", arguments->tokenizer,
                   "A SentencePiece model, tokenizer.json or tiktoken file (default: the run's "
                   "tokenizer_path)")
      ->type_name("FILE");
  daemon::add_count(*command, "--max-tokens", arguments->max_tokens,
                    "Tokens to add at most (default 64)", 1, 1 << 17);
  command
      ->add_option("--temperature", arguments->temperature,
                   "0 takes the most likely token; 1 samples by probability (default 0)")
      ->type_name("T")
      ->check(daemon::number(0, 100));
  command->add_option("--top-k", arguments->top_k, "Sample from the K most likely tokens; 0: all")
      ->type_name("K")
      ->transform(daemon::whole_number(0, std::numeric_limits<int32_t>::max()));
  command
      ->add_option("--top-p", arguments->top_p,
                   "Sample from the most likely tokens with total probability P")
      ->type_name("P")
      ->check(daemon::number(0, 1));
  command
      ->add_option("--min-p", arguments->min_p,
                   "Sample from tokens with at least P times the probability of the likeliest")
      ->type_name("P")
      ->check(daemon::number(0, 1));
  command
      ->add_option("--repetition-penalty", arguments->repetition_penalty,
                   "Makes tokens of the text so far less likely if above 1 (default 1)")
      ->type_name("R")
      ->check(daemon::number(0.01, 100));
  command->add_option("--stop", arguments->stop, "End the text before TEXT")->type_name("TEXT");
  daemon::add_count(*command, "--seed", arguments->seed, "Seed of the sampling", 0,
                    std::numeric_limits<int64_t>::max());
  command->add_flag("--int8-cache", arguments->int8_cache,
                    "Store keys and values as int8, in a quarter of the memory of float32");
  daemon::add_count(*command, "--bos-id", arguments->bos_id,
                    "The token before each prompt (default: as the model's texts begin)", 0,
                    std::numeric_limits<int32_t>::max());
  daemon::add_count(*command, "--length", arguments->length,
                    "Tokens of a prompt and its output together, above --max-tokens; a longer "
                    "prompt loses its beginning (default: no limit)",
                    2, 1 << 18);
  daemon::add_count(*command, "--tensor-parallel", arguments->tensor_parallel,
                    "Divide the model among N processes on the CPU (default: "
                    "ici_tensor_parallelism of a config file, else 1)",
                    1, trainer::kTensorRanksMax);
  command
      ->add_option("--hardware", arguments->hardware,
                   "cpu, gpu or auto (default: hardware of a config file, else cpu)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"cpu", "gpu", "auto"}));
  command->add_flag("--add-bos", arguments->add_bos,
                    "Begin each prompt with the token that the model has before texts without a "
                    "context");
  command
      ->add_option("--adapter", arguments->adapters,
                   "A LoRA adapter of the model: a folder of PEFT, or a run with enable_lora. May "
                   "be repeated. Prompts use the first one; a line of FILE.jsonl may name another")
      ->type_name("NAME=DIR")
      ->allow_extra_args(false);
  add_json_option(*command, arguments->json);
  command->footer(
      "Examples:\n"
      "  muster decode --run out/first --prompt \"In the beginning\"\n"
      "  muster decode --run out/first --prompt \"And God said\" --temperature 0.8 --top-k 40 "
      "--seed 7\n"
      "  muster decode --run out/first --prompts prompts.txt --json\n"
      "  muster decode configs/base.yml model_name=llama2-tiny run_name=first "
      "base_output_directory=out \\\n"
      "      tokenizer_path=tokenizer.model prompt=\"In the beginning\" "
      "decode_sampling_strategy=topk decode_sampling_top_k=40");
  on_call(*command, action, arguments, decode);
}

}  // namespace muster::cli
