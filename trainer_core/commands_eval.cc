// muster-trainer eval: evaluates a checkpoint on tasks, as a run with steps=0 on one rank.
#include <iostream>
#include <limits>
#include <string>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/train_mesh.h"
#include "trainer_core/checkpoint/find_checkpoint.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/commands.h"
#include "trainer_core/loop/train.h"
#include "trainer_core/startup/choose_backend.h"
#include "trainer_core/startup/load_config.h"
#include "trainer_core/startup/preflight.h"

namespace muster::trainer {
namespace {

// Reads an option into `field`. After the first error, does nothing.
template <class Field>
void read_option(const CommandLine& line, const std::string& name, int64_t min, Field& field,
                 absl::Status& status) {
  if (!status.ok()) return;
  const auto value = line.integer(name, field, min, std::numeric_limits<Field>::max());
  status = value.status();
  if (value.ok()) field = static_cast<Field>(*value);
}

// Returns a config that evaluates the model of `stored` and trains nothing.
TrainConfig evaluation_of(const TrainConfig& stored) {
  TrainConfig config;
  config.run_name = stored.run_name;
  config.model = stored.model;
  config.optimizer.schedule_steps = 1;
  config.dtype = stored.dtype;
  config.weight_dtype = stored.weight_dtype;
  config.matmul_precision = stored.matmul_precision;
  config.packing = stored.packing;
  config.max_target_length = stored.max_target_length;
  config.tokenizer_path = stored.tokenizer_path;
  config.tokenizer_type = stored.tokenizer_type;
  config.enable_checkpointing = false;
  config.eval.interval = 1;
  return config;
}

absl::StatusOr<TrainConfig> eval_config(const CommandLine& line) {
  for (const char* name : {"checkpoint", "tasks"}) {
    if (!line.has(name)) return absl::InvalidArgumentError(absl::StrCat("--", name, " is missing"));
  }
  const auto folder = find_checkpoint(line.text("checkpoint"));
  if (!folder.ok()) return folder.status();
  const auto stored = training_of_checkpoint(*folder);
  if (!stored.ok()) return stored.status();
  TrainConfig config = evaluation_of(*stored);
  config.load_parameters_path = *folder;
  config.eval.tasks = line.text("tasks");
  config.eval.output = line.text("out");
  config.eval.truncate_contexts = line.has("truncate");
  config.eval.add_bos = line.has("add-bos");
  if (line.has("tokenizer")) {
    config.tokenizer_path = line.text("tokenizer");
    config.tokenizer_type.clear();  // the type is that of the training's tokenizer
  }
  absl::Status status;
  read_option(line, "batch", 1, config.per_device_batch_size, status);
  read_option(line, "length", 1, config.max_target_length, status);
  read_option(line, "bos-id", -1, config.eval.bos_id, status);
  if (!status.ok()) return status;
  config.eval.per_device_batch_size = config.per_device_batch_size;
  const std::string hardware = line.text("hardware", "auto");
  for (size_t i = 0; i < kHardwareNames.size(); ++i)
    if (hardware == kHardwareNames[i]) config.hardware = static_cast<Hardware>(i);
  if (hardware != kHardwareNames[static_cast<size_t>(config.hardware)])
    return absl::InvalidArgumentError(
        absl::StrCat("--hardware is ", hardware, "; it must be cpu, gpu or auto"));
  if (status = validate(config); !status.ok()) return status;
  return config;
}

}  // namespace

ExitCode eval_command(std::span<const std::string_view> arguments, StopSignals& signals) {
  // Users call it as `muster eval`, which executes this program.
  const std::string who = "muster: error";
  const auto line =
      CommandLine::parse(arguments, {.values = {"checkpoint", "tasks", "out", "tokenizer", "batch",
                                                "length", "bos-id", "hardware"},
                                     .switches = {"truncate", "add-bos", "json"}});
  if (!line.ok()) return report(who, line.status());
  auto config = eval_config(*line);
  if (!config.ok()) return report(who, config.status());
  const RankEnv env;
  const int32_t threads = threads_per_rank(*config, env);
  auto chosen = choose_backend(config->hardware, threads, gpu_options(*config, env));
  if (!chosen.ok()) return report(who, chosen.status());
  config->hardware = chosen->hardware;
  if (config->hardware == Hardware::kCpu)  // train() checks the memory of a device
    if (auto status = check_memory(*config, MachineRoots()); !status.ok())
      return report(who, status);
  const auto page = ProgressWriter::anonymous(env.identity(config->steps));
  ProcessGroups groups(LocalWorld(1, env.collective_timeout).join(0), mesh_of(config->mesh),
                       page.get(), chosen->backend->memory());
  EvalRecord record;
  const ExitCode code =
      train(*config, {.groups = groups,
                      .page = *page,
                      .out = std::cerr,
                      .err = std::cerr,
                      .signals = signals,
                      .threads = chosen->backend->threads(),
                      .on_step = nullptr,
                      .on_evaluation = [&](const EvalRecord& done) { record = done; },
                      .backend = chosen->backend});
  // Results that cannot be written to a folder are printed nevertheless.
  if (record.tasks.empty()) return code;
  const ExitCode printed = print_result(line->has("json") ? results_json(record, config->run_name)
                                                          : table_of(record.tasks));
  return code == ExitCode::kOk ? printed : code;
}

}  // namespace muster::trainer
