// Steps of the trainer itself, as `muster run` has them on one GPU: data, forward, backward, clipping, AdamW.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/gpu/gpu_bench.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/loop/train.h"
#include "trainer_core/startup/choose_backend.h"

namespace muster::bench {
namespace {

using trainer::RematPolicy;
using trainer::StepRecord;
using trainer::TrainConfig;

struct Job {
  const char* what;
  int32_t layers, width, heads, kv_heads, mlp, vocab, seq_len, batch;
  RematPolicy remat;
};
constexpr std::array kJobs = {
    Job{"125M", 12, 768, 12, 12, 2048, 32'000, 1024, 16, RematPolicy::kNone},
    Job{"1.1B", 22, 2048, 32, 4, 5632, 32'000, 2048, 4, RematPolicy::kNone},
    Job{"1.1B, remat full", 22, 2048, 32, 4, 5632, 32'000, 2048, 16, RematPolicy::kFull},
};
constexpr int64_t kSteps = 8, kWarmUp = 3;

TrainConfig config_of(const Job& job, bool small) {
  TrainConfig config;
  config.run_name = "bench";
  config.hardware = trainer::Hardware::kGpu;
  config.dtype = trainer::ComputeType::kBfloat16;
  config.model.vocab_size = job.vocab;
  config.model.emb_dim = job.width;
  config.model.num_layers = job.layers;
  config.model.num_query_heads = job.heads;
  config.model.num_kv_heads = job.kv_heads;
  config.model.head_dim = job.width / job.heads;
  config.model.mlp_dim = job.mlp;
  config.remat_policy = job.remat;
  config.per_device_batch_size = job.batch;
  config.max_target_length = job.seq_len;
  if (small) {
    config.model.vocab_size = 64;
    config.model.num_layers = 2;
    config.model.emb_dim = config.model.mlp_dim = 32;
    config.model.num_query_heads = config.model.num_kv_heads = 2;
    config.model.head_dim = 16;
    config.per_device_batch_size = 1;
    config.max_target_length = 8;
  }
  config.steps = kSteps;
  config.optimizer.schedule_steps = kSteps;
  config.log_period = kSteps;
  config.enable_checkpointing = false;
  return config;
}

// The median step; none after an error, which `error` then is.
std::optional<StepRecord> median_step(const TrainConfig& config,
                                      const std::shared_ptr<trainer::Backend>& device,
                                      std::string& error) {
  const auto page = ProgressWriter::anonymous({.rank = 0, .world_size = 1});
  trainer::ProcessGroups groups(trainer::LocalWorld(1, trainer::kRoundTimeout).join(0),
                                trainer::mesh_of(config.mesh), page.get(), device->memory());
  trainer::StopSignals signals;
  std::ostringstream out, err;
  std::vector<StepRecord> steps;
  const ExitCode code =
      trainer::train(config, {.groups = groups,
                              .page = *page,
                              .out = out,
                              .err = err,
                              .signals = signals,
                              .on_step = [&](const StepRecord& step) { steps.push_back(step); },
                              .backend = device});
  if (code != ExitCode::kOk) {
    error = err.str();
    return std::nullopt;
  }
  steps.erase(steps.begin(), steps.begin() + kWarmUp);
  std::ranges::sort(steps, {}, &StepRecord::seconds);
  return steps[steps.size() / 2];
}

}  // namespace

// Layers as CUDA graphs, as they are by default; and beside it what a step takes where each kernel is called.
Json measure_training(const Bench& bench) {
  Json rows = Json::array();
  for (const Job& job : kJobs) {
    TrainConfig config = config_of(job, bench.small);
    const auto device = trainer::gpu_backend(trainer::gpu_options(config, {}));
    if (!device.ok()) return {{"error", std::string(device.status().message())}};
    std::string error;
    const auto step = median_step(config, *device, error);
    config.cuda_graphs = false;
    const auto without = step ? median_step(config, *device, error) : std::nullopt;
    if (!without) {
      rows.push_back({{"model", job.what}, {"error", error}});
      continue;
    }
    Json row = {{"model", job.what},
                {"dtype", "bfloat16"},
                {"sequences", config.per_device_batch_size},
                {"seq_len", config.max_target_length},
                {"remat_policy", trainer::name_of(trainer::kRematPolicyNames, job.remat)},
                {"median_step_seconds", step->seconds},
                {"median_step_seconds_without_graphs", without->seconds},
                {"speedup_by_graphs", without->seconds / step->seconds},
                {"tokens_per_second", step->tokens_per_device / step->seconds},
                {"tflops_per_second", step->tflops_causal_per_device / step->seconds},
                {"peak_device_mib", static_cast<double>((*device)->peak_bytes()) / (1 << 20)}};
    if (bench.spec.bf16_tflops > 0)
      row["mfu"] = step->tflops_causal_per_device / step->seconds / bench.spec.bf16_tflops;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace muster::bench
