// muster debug step: the results of one training step, for comparison with another implementation.
#include "cli/command.h"
#include "cli/jobs/job_arguments.h"
#include "cli/run/exec_trainer.h"
#include "cli/terminal/terminal.h"
#include "jobspec/resolve_step.h"

namespace muster::cli {
namespace {

struct StepArguments {
  std::string folder;
  std::string tokens;
  std::string out;
  std::vector<std::string> overrides;
  bool json = false;
};

int step(const StepArguments& arguments) {
  std::vector<std::string> warnings;
  const auto config = jobspec::resolve_step(arguments.overrides, warnings);
  if (!config.ok()) return fail(config.status());
  for (const std::string& warning : warnings) warn(warning);
  const auto file = in_memory_file(trainer::to_json(*config).dump());
  if (!file.ok()) return fail(file.status());
  std::vector<std::string> words = {"debug-step",     "--config",       *file,
                                    "--folder",       arguments.folder, "--tokens",
                                    arguments.tokens, "--out",          arguments.out};
  if (arguments.json) words.push_back("--json");
  return fail(exec_trainer(std::move(words)));
}

}  // namespace

void declare_debug(CLI::App& app, Action& action) {
  CLI::App* debug =
      app.add_subcommand("debug", "Compare the trainer's results with other implementations");
  debug->require_subcommand(1);
  debug->footer(
      "Example:\n  muster debug step llama-folder --tokens tokens.json --out step.safetensors");
  auto arguments = std::make_shared<StepArguments>();
  CLI::App* command =
      debug->add_subcommand("step",
                            "Run one training step on given tokens and write what it computes: "
                            "logits, loss, and every gradient and updated\n"
                            "parameter by its Hugging Face name, in fp32. The loss is the mean "
                            "cross-entropy of each list's next tokens.");
  command->group("Commands");
  command
      ->add_option(
          "folder", arguments->folder,
          "A run's folder or one of its checkpoints, a Hugging Face folder (Llama, Mistral, "
          "Mixtral, Gemma, GPT-2), or Meta's (params.json, consolidated.*.pth)")
      ->required()
      ->type_name("FOLDER");
  command->add_option("--tokens", arguments->tokens, "A list of equally long lists of token ids")
      ->required()
      ->type_name("FILE.json");
  command->add_option("--out", arguments->out, "The safetensors file to write")
      ->required()
      ->type_name("FILE");
  command
      ->add_option(kOverrides, arguments->overrides,
                   "Changes to MaxText's defaults: optimizer keys, dtype, remat_policy, "
                   "threads_per_rank. The step uses learning_rate unchanged, without a schedule")
      ->type_name("key=value");
  add_json_option(*command, arguments->json);
  command->footer(
      "Examples:\n"
      "  echo '[[1, 450, 7483], [1, 310, 3444]]' > tokens.json\n"
      "  muster debug step Llama-2-7b-hf --tokens tokens.json --out step.safetensors\n"
      "  muster debug step out/first/checkpoints --tokens tokens.json --out step.safetensors "
      "learning_rate=1e-3 adam_weight_decay=0");
  on_call(*command, action, arguments, step);
}

}  // namespace muster::cli
