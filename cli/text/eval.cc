// muster eval: evaluates a run's newest checkpoint on tasks. The model runs in muster-trainer,
// which replaces this process. With a config file, entry_points.cc makes it a line of muster run.
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "cli/command.h"
#include "cli/run/exec_trainer.h"
#include "cli/terminal/terminal.h"
#include "common/objects/object_url.h"
#include "daemon/help.h"
#include "trainer_core/base/best_path.h"
#include "trainer_core/base/eval_task_files.h"

namespace muster::cli {
namespace {

struct EvalArguments {
  std::string run;
  std::vector<std::string> tasks;
  std::string out;
  std::optional<std::string> tokenizer;
  std::optional<int32_t> batch;
  std::optional<int32_t> length;
  std::optional<int32_t> bos_id;
  std::optional<std::string> hardware;
  bool add_bos = false;
  bool truncate = false;
  bool json = false;
};

absl::StatusOr<std::vector<std::string>> trainer_words(const EvalArguments& arguments) {
  if (arguments.run.empty()) {
    return absl::InvalidArgumentError(
        "nothing to evaluate: give --run DIR, or a config file with the run's keys");
  }
  if (arguments.tasks.empty())
    return absl::InvalidArgumentError("give --task NAME=FILE, for example --task lambada=FILE");
  const std::string tasks = absl::StrJoin(arguments.tasks, ",");
  if (auto status = trainer::parse_eval_tasks(tasks).status(); !status.ok()) return status;
  std::string checkpoint = arguments.run;
  if (!is_remote(checkpoint) && !trainer::names_best(checkpoint)) {
    absl::StrAppend(&checkpoint, "/checkpoints");
    if (std::error_code error; !std::filesystem::is_directory(checkpoint, error)) {
      return absl::NotFoundError(absl::StrCat(
          "--run ", arguments.run,
          ": no folder checkpoints in it; give base_output_directory/run_name, or a folder made by "
          "muster convert"));
    }
  }
  std::vector<std::string> words = {"eval", "--checkpoint", checkpoint, "--tasks", tasks};
  const auto add = [&](const char* name, const auto& value) {
    if (value) words.insert(words.end(), {name, absl::StrCat(*value)});
  };
  if (!arguments.out.empty()) words.insert(words.end(), {"--out", arguments.out});
  add("--tokenizer", arguments.tokenizer);
  add("--batch", arguments.batch);
  add("--length", arguments.length);
  add("--bos-id", arguments.bos_id);
  add("--hardware", arguments.hardware);
  if (arguments.add_bos) words.emplace_back("--add-bos");
  if (arguments.truncate) words.emplace_back("--truncate");
  if (arguments.json) words.emplace_back("--json");
  return words;
}

int eval(const EvalArguments& arguments) {
  auto words = trainer_words(arguments);
  if (!words.ok()) return fail(words.status());
  return fail(exec_trainer(*std::move(words)));
}

}  // namespace

void declare_eval(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<EvalArguments>();
  CLI::App* command = app.add_subcommand("eval", "Evaluate a trained model on tasks");
  command
      ->add_option("--run", arguments->run,
                   "A run's output folder, base_output_directory/run_name; with /best behind it, "
                   "the checkpoint of its best evaluation")
      ->type_name("DIR");
  command
      ->add_option("--task", arguments->tasks,
                   "A task and its JSON lines: lambada, boolq, choice, loglikelihood or perplexity")
      ->type_name("NAME=FILE");
  command
      ->add_option("--out", arguments->out, "Write the results, and a line per sample, to a folder")
      ->type_name("DIR");
  command
      ->add_option("--tokenizer", arguments->tokenizer,
                   "A tokenizer file (default: the run's tokenizer_path)")
      ->type_name("FILE");
  daemon::add_count(*command, "--batch", arguments->batch, "Sequences per batch (default 1)", 1,
                    1 << 20);
  daemon::add_count(*command, "--length", arguments->length,
                    "Tokens of a sequence (default: max_target_length of the run)", 1, 1 << 20);
  daemon::add_count(
      *command, "--bos-id", arguments->bos_id,
      "The token before texts without a context (default: as the model's texts begin)", 0, 1 << 30);
  command->add_flag("--add-bos", arguments->add_bos,
                    "Begin texts that have a context with this token, too");
  command->add_flag("--truncate", arguments->truncate,
                    "Drop the beginning of contexts that are too long");
  command->add_option("--hardware", arguments->hardware, "cpu, gpu or auto (default auto)")
      ->type_name("NAME");
  add_json_option(*command, arguments->json);
  command->footer(
      "Examples:\n"
      "  muster eval --run out/first --task lambada=lambada_test_en.jsonl --task boolq=dev.jsonl\n"
      "  muster eval --run out/first --task loglikelihood=requests.jsonl --out results --json\n"
      "  muster eval configs/base.yml model_name=llama2-7b run_name=first "
      "base_output_directory=out \\\n"
      "      --task lambada=lambada_test_en.jsonl --ranks 8\n"
      "\n"
      "With a config file, the words are those of muster run, on any mesh.");
  on_call(*command, action, arguments, eval);
}

}  // namespace muster::cli
