#include "trainer_core/commands.h"

#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "common/files/file_write.h"
#include "common/objects/object_url.h"
#include "common/process/start_limits.h"
#include "common/stacks/self_stacks.h"
#include "common/text/escape.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/base/saved_plan_check.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/base/units.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/comm/world.h"
#include "trainer_core/loop/train.h"
#include "trainer_core/recovery/failure.h"
#include "trainer_core/recovery/fence_watch.h"
#include "trainer_core/recovery/local_checkpoints.h"
#include "trainer_core/startup/choose_backend.h"
#include "trainer_core/startup/command_line.h"
#include "trainer_core/startup/cpu_speed.h"
#include "trainer_core/startup/load_config.h"
#include "trainer_core/startup/planned_start.h"
#include "trainer_core/startup/preflight.h"
#include "trainer_core/startup/rank_env.h"
#include "trainer_core/tools/debug_step.h"

namespace muster::trainer {
namespace {

absl::StatusOr<std::unique_ptr<ProgressWriter>> open_page(const RankEnv& env,
                                                          const TrainConfig& config) {
  if (env.progress_page.empty()) return ProgressWriter::anonymous(env.identity(config.steps));
  return ProgressWriter::create(env.progress_page, env.identity(config.steps));
}

// Ends this process when a later attempt of its job owns the checkpoint directory. One rank of each
// node watches; its peers lose it. Returns null if there is nothing to watch.
std::unique_ptr<FenceWatch> watch_fence(const TrainConfig& config, const RankEnv& env,
                                        const std::string& who, EndProcess end_process) {
  const std::string& directory = config.checkpoint_directory;
  if (end_process == nullptr || env.job == 0 || env.local_rank != 0 ||
      !config.enable_checkpointing || is_remote(directory))
    return nullptr;
  return std::make_unique<FenceWatch>(
      directory, CheckpointOwner{env.job, env.attempt, env.incarnation},
      [who, end_process](const std::string& why) {
        std::cerr << absl::StrCat(who, ": ", why, "\n") << std::flush;
        end_process(ExitCode::kFailure);
      });
}

}  // namespace

absl::StatusOr<std::shared_ptr<Transport>> join_world(const RankEnv& env) {
  if (env.world_size == 1) return LocalWorld(1, env.collective_timeout).join(0);
  WorldOptions options;
  options.gloo = {.rank = env.rank,
                  .size = env.world_size,
                  .rendezvous = env.rendezvous,
                  .bind_address = env.bind_address,
                  .scope = absl::StrCat(env.job, "/", env.attempt, "/"),
                  .connect_timeout = env.connect_timeout,
                  .timeout = env.collective_timeout};
  options.notes = &std::cerr;
  return connect_world(options);
}

ExitCode report(const std::string& who, const absl::Status& status) {
  // Tensor and file names come from outside and must not send control sequences to a terminal.
  const std::string message(status.message());
  std::cerr << who << ": " << escape_controls(message) << std::endl;
  return exit_code_for(status);
}

absl::StatusOr<TrainConfig> config_option(const CommandLine& line) {
  if (!line.has("config")) return absl::InvalidArgumentError("--config FILE is missing");
  return load_config(line.text("config"));
}

ExitCode print_result(std::string_view text) {
  const absl::Status status = write_result(text);
  return status.ok() ? ExitCode::kOk : report("muster: error", status);
}

ExitCode train_command(std::span<const std::string_view> arguments, StopSignals& signals,
                       const StepHook& hook, EndProcess end_process) {
  const auto env = read_rank_env();
  if (!env.ok()) return report("muster-trainer", env.status());
  const std::string who = absl::StrCat("rank ", env->rank);
  const auto line = CommandLine::parse(arguments, {.values = {"config"}, .switches = {}});
  if (!line.ok()) return report(who, line.status());
  auto config = config_option(*line);
  if (!config.ok()) return report(who, config.status());
  if (auto status = check_world_size(*config, env->world_size); !status.ok())
    return report(who, status);
  const auto saved = load_saved_plan(*config);
  if (!saved.ok()) return report(who, saved.status());
  const auto page = open_page(*env, *config);
  if (!page.ok()) return report(who, page.status());
  if (!env->progress_page.empty()) {
    const absl::Status offered = offer_self_stacks(self_stacks_path(env->progress_page));
    if (!offered.ok()) {
      std::cerr << who << ": its stacks cannot be read where ptrace is not permitted: "
                << std::string(offered.message()) << std::endl;
    }
  }
  const int32_t threads = threads_per_rank(*config, *env);
  // The thread of stacks, of signals, of the input, of the fence, and one of the transport.
  constexpr int32_t kThreadsBeside = 5;
  constexpr uint64_t kFilesMin = 16;
  const absl::Status can_start = check_start_needs(
      who,
      {.threads = static_cast<uint64_t>(threads - 1 + kThreadsBeside), .open_files = kFilesMin});
  if (!can_start.ok()) return report("muster-trainer", can_start);
  const SelfStackThread answers;
  if (*saved != nullptr) store_algorithms(*config, **saved);
  auto chosen =
      choose_backend(config->hardware, threads, gpu_options(*config, *env), env->has_gpus);
  if (!chosen.ok()) return report(who, chosen.status());
  config->hardware = chosen->hardware;  // ranks compare configs: all must have chosen the same
  if (*saved != nullptr) {
    const absl::Status same = check_planned_backend(**saved, *config, *chosen->backend);
    if (!same.ok()) return report(who, same);
  }
  if (env->rank == 0 && !chosen->reason.empty()) std::cout << chosen->reason << std::endl;
  (*page)->set_phase(Phase::kRendezvous, monotonic_now());
  auto transport = join_world(*env);
  if (!transport.ok()) return report(absl::StrCat(who, ": rendezvous"), transport.status());
  ProcessGroups groups(*std::move(transport), mesh_of(config->mesh), page->get(),
                       chosen->backend->memory());
  signals.training = true;
  const auto fence = watch_fence(*config, *env, who, end_process);
  const auto on_step = [&](const StepRecord& record) {
    if (hook) hook(groups, **page, record);
  };
  return train(*config, {.groups = groups,
                         .page = **page,
                         .out = std::cout,
                         .err = std::cerr,
                         .signals = signals,
                         .threads = threads,
                         .on_step = on_step,
                         .owner = {env->job, env->attempt, env->incarnation},
                         .on_evaluation = nullptr,
                         .local = local_storage(*config, env->local_checkpoints),
                         .known_checkpoint_step = env->checkpoint_step,
                         .backend = chosen->backend,
                         .saved_plan = saved->get()});
}

ExitCode check_command(std::span<const std::string_view> arguments) {
  const auto line =
      CommandLine::parse(arguments, {.values = {"config"}, .switches = {"here", "no-plan"}});
  if (!line.ok()) return report("muster-trainer check", line.status());
  const auto config = config_option(*line);
  if (!config.ok()) return report("muster-trainer check", config.status());
  if (const auto saved = load_saved_plan(*config); !saved.ok())
    return report("muster-trainer check", saved.status());
  const absl::Status status =
      preflight(*config, line->has("here") ? std::optional(MachineRoots()) : std::nullopt,
                line->has("no-plan") ? PlanCheck::kOmit : PlanCheck::kCompare);
  return status.ok() ? ExitCode::kOk : report("muster-trainer check", status);
}

ExitCode cpu_speed_command() {
  const CpuSpeed speed = measure_cpu_speed();
  const nlohmann::json out = {{"float32_seconds", speed.float32_seconds},
                              {"bfloat16_seconds", speed.bfloat16_seconds},
                              {"bfloat16_speed", speed.ratio()}};
  return print_result(out.dump() + "\n");
}

ExitCode debug_step_command(std::span<const std::string_view> arguments) {
  // Users call it as `muster debug step`, which executes this program.
  const std::string who = "muster: error";
  const auto line = CommandLine::parse(
      arguments, {.values = {"config", "folder", "tokens", "out"}, .switches = {"json"}});
  if (!line.ok()) return report(who, line.status());
  for (const char* name : {"folder", "tokens", "out"}) {
    if (!line->has(name))
      return report(who, absl::InvalidArgumentError(absl::StrCat("--", name, " is missing")));
  }
  const auto config = config_option(*line);
  if (!config.ok()) return report(who, config.status());
  const DebugStepOptions options{.folder = line->text("folder"),
                                 .tokens = line->text("tokens"),
                                 .out = line->text("out"),
                                 .threads = threads_per_rank(*config, RankEnv())};
  const auto result = debug_step(*config, options);
  if (!result.ok()) return report(who, result.status());
  const bool finite = result->not_finite.empty();
  const ExitCode code = finite ? ExitCode::kOk : ExitCode::kNotFinite;
  if (!finite) {
    std::cerr << who << ": " << escape_controls(result->not_finite)
              << " is not finite; no step of the optimizer was made" << std::endl;
  }
  if (line->has("json")) {
    const nlohmann::json out = {{"loss", result->loss},
                                {"gradient_norm", result->gradient_norm},
                                {"parameters", result->parameter_count},
                                {"not_finite", result->not_finite},
                                {"out", options.out}};
    const ExitCode output = print_result(out.dump(2) + "\n");
    return finite ? output : code;
  }
  const ExitCode output = print_result(
      absl::StrFormat("loss: %.6f, gradient norm: %.6f, parameters: %d, wrote %s\n", result->loss,
                      result->gradient_norm, result->parameter_count, options.out));
  return finite ? output : code;
}

}  // namespace muster::trainer
