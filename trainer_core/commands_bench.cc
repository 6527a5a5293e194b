#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/files/file_write.h"
#include "common/process/usable_cpus.h"
#include "trainer_core/base/machine_memory.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/base/units.h"
#include "trainer_core/commands.h"
#include "trainer_core/forecast/bench_models.h"
#include "trainer_core/forecast/device_bench.h"
#include "trainer_core/forecast/energy_counter.h"
#include "trainer_core/startup/choose_backend.h"
#include "trainer_core/startup/command_line.h"
#include "trainer_core/startup/cpu_contention.h"
#include "trainer_core/startup/load_config.h"
#include "trainer_core/startup/rank_env.h"

namespace muster::trainer {
namespace {

// Returns the memory of a device: what a rank can allocate on a GPU, or all that ranks of this
// machine can allocate.
uint64_t device_mib(const Backend& backend) {
  const uint64_t bytes = backend.memory().is_host()
                             ? available_memory(MachineRoots()).value_or(AvailableMemory()).bytes
                             : backend.free_bytes() + backend.own_bytes();
  return bytes / static_cast<uint64_t>(kMiB);
}

// Prepares collectives of GPUs as a training does.
absl::Status prepare_bench(const TrainConfig& config, const RankEnv& env, ProcessGroups& groups,
                           const std::shared_ptr<Backend>& backend) {
  const auto page = ProgressWriter::anonymous(env.identity(config.steps));
  StopSignals signals;
  const auto memory = prepare_devices(config, {.groups = groups,
                                               .page = *page,
                                               .out = std::cout,
                                               .err = std::cerr,
                                               .signals = signals,
                                               .on_step = nullptr,
                                               .backend = backend});
  return memory.status();
}

}  // namespace

ExitCode bench_device_command(std::span<const std::string_view> arguments) {
  constexpr const char* kName = "muster-trainer bench-device";
  const auto line = CommandLine::parse(
      arguments,
      {.values = {"out", "dtype", "hardware", "steps", "scale", "seconds"}, .switches = {}});
  if (!line.ok()) return report(kName, line.status());
  if (!line->has("out")) return report(kName, absl::InvalidArgumentError("--out FILE is missing"));
  constexpr int64_t kStepsMax = 1000, kScaleMax = 16, kSeconds = 90, kSecondsMax = 3600;
  const auto steps = line->integer("steps", 5, 2, kStepsMax);
  if (!steps.ok()) return report(kName, steps.status());
  const auto scale = line->integer("scale", 0, 0, kScaleMax);
  if (!scale.ok()) return report(kName, scale.status());
  const auto seconds = line->integer("seconds", kSeconds, 1, kSecondsMax);
  if (!seconds.ok()) return report(kName, seconds.status());
  const auto hardware = value_named<Hardware>(kHardwareNames, line->text("hardware", "auto"));
  const auto dtype = value_named<ComputeType>(kComputeTypeNames, line->text("dtype", "float32"));
  if (!hardware || !dtype)
    return report(kName, absl::InvalidArgumentError(
                             "--hardware is cpu, gpu or auto; --dtype is float32 or bfloat16"));
  const auto env = read_rank_env();
  if (!env.ok()) return report(kName, env.status());
  TrainConfig config = shared_step_config(env->world_size, *dtype, 1);
  const auto chosen = choose_backend(*hardware, threads_per_rank(config, *env),
                                     gpu_options(config, *env), env->has_gpus);
  if (!chosen.ok()) return report(kName, chosen.status());
  config.hardware = chosen->hardware;
  const bool is_cpu = chosen->hardware == Hardware::kCpu;
  auto transport = join_world(*env);
  if (!transport.ok()) return report(kName, transport.status());
  const std::shared_ptr<Backend>& backend = chosen->backend;
  const uint64_t memory_mib = device_mib(*backend);
  ProcessGroups groups(*std::move(transport), mesh_of(config.mesh), nullptr, backend->memory());
  if (auto status = prepare_bench(config, *env, groups, backend); !status.ok())
    return report(kName, status);
  ContentionWatch watch;
  EnergyCounter energy;
  watch.begin();
  energy.start(monotonic_now());
  const auto measured = measure_device(backend, groups,
                                       {.dtype = *dtype,
                                        .scale = static_cast<int32_t>(*scale),
                                        .steps = static_cast<int32_t>(*steps),
                                        .seconds = static_cast<double>(*seconds)});
  if (!measured.ok()) return report(kName, measured.status());
  if (env->rank != 0) return ExitCode::kOk;
  nlohmann::json out = to_json(*measured);
  const std::string description = backend->description();
  out["name"] = description.substr(0, description.find(','));
  out["hardware"] = is_cpu ? "cpu" : "gpu";
  out["ranks"] = env->world_size;
  out["threads"] = backend->threads();
  out["memory_mib"] = memory_mib;
  out["disturbance"] = watch.counts() ? "" : watch.disturbance();
  if (const auto watts = energy.watts(monotonic_now()); watts && is_cpu) out["node_watts"] = *watts;
  const absl::Status written = write_file_atomically(line->text("out"), out.dump(2) + "\n");
  return written.ok() ? ExitCode::kOk : report(kName, written);
}

}  // namespace muster::trainer
