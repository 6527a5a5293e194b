// Measures steps of the trainer itself, as `muster run` executes them on one GPU: data, forward,
// backward, clipping, AdamW.
#include <algorithm>
#include <array>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "bench/gpu/gpu_bench.h"
#include "common/time/time.h"
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
  int64_t steps;
  bool gpt2 = false;  // learned positions, layer norms with biases, GELU, a tied head
  // Measure also without CUDA graphs, with each kernel launched separately.
  bool without_graphs = false;
};
// bench/gpu/peers has the same workloads under the same names.
constexpr std::array kJobs = {
    Job{"125M", 12, 768, 12, 12, 2048, 32'000, 1024, 16, RematPolicy::kNone, 40, false, true},
    Job{"1.1B", 22, 2048, 32, 4, 5632, 32'000, 2048, 4, RematPolicy::kNone, 24},
    Job{"GPT-2 124M", 12, 768, 12, 12, 3072, 50'304, 1024, 16, RematPolicy::kNone, 40, true},
    Job{"1.1B, remat full", 22, 2048, 32, 4, 5632, 32'000, 2048, 16, RematPolicy::kFull, 8},
    Job{"7B", 32, 4096, 32, 32, 11'008, 32'000, 4096, 2, RematPolicy::kMinimalWithContext, 8},
};
constexpr int64_t kWarmUp = 3;

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
  if (job.gpt2) {
    config.model.norm_type = trainer::NormType::kLayer;
    config.model.position_type = trainer::PositionType::kLearned;
    config.model.trainable_position_size = job.seq_len;
    config.model.activation = trainer::Activation::kGelu;
    config.model.gated_mlp = false;
    config.model.qkv_bias = config.model.out_bias = config.model.mlp_bias = true;
    config.model.logits_via_embedding = true;
  }
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
    if (job.gpt2) config.model.trainable_position_size = config.max_target_length;
  }
  config.steps = small ? kWarmUp + 2 : job.steps;
  config.optimizer.schedule_steps = config.steps;
  config.log_period = config.steps;
  config.enable_checkpointing = false;
  return config;
}

struct Run {
  StepRecord median;
  double seconds_to_first_step = 0;  // from the call of train() to the first completed step
  std::vector<double> step_seconds;
};

// Returns the run's times, or the rank's error.
absl::StatusOr<Run> run_of(const TrainConfig& config,
                           const std::shared_ptr<trainer::Backend>& device) {
  const auto page = ProgressWriter::anonymous({.rank = 0, .world_size = 1});
  trainer::ProcessGroups groups(trainer::LocalWorld(1, trainer::kRoundTimeout).join(0),
                                trainer::mesh_of(config.mesh), page.get(), device->memory());
  trainer::StopSignals signals;
  std::ostringstream out, err;
  std::vector<StepRecord> steps;
  Run run;
  const Instant began = monotonic_now();
  const ExitCode code = trainer::train(config, {.groups = groups,
                                                .page = *page,
                                                .out = out,
                                                .err = err,
                                                .signals = signals,
                                                .on_step =
                                                    [&](const StepRecord& step) {
                                                      if (steps.empty())
                                                        run.seconds_to_first_step =
                                                            to_seconds(monotonic_now() - began);
                                                      steps.push_back(step);
                                                    },
                                                .backend = device});
  if (code != ExitCode::kOk) return absl::InternalError(err.str());
  for (const StepRecord& step : steps) run.step_seconds.push_back(step.seconds);
  steps.erase(steps.begin(), steps.begin() + kWarmUp);
  std::ranges::sort(steps, {}, &StepRecord::seconds);
  run.median = steps[steps.size() / 2];
  return run;
}

// Returns a row without times: insufficient memory on the card is no error.
Json row_without(const Job& job, const std::string& error) {
  const bool no_room = error.find("out of memory:") != std::string::npos;
  return {{"model", job.what}, {no_room ? "skipped" : "error", error}};
}

}  // namespace

// Measures with CUDA graphs, the default; one job also without them.
void measure_training(const Bench& bench) {
  for (const Job& job : kJobs) {
    TrainConfig config = config_of(job, bench.small);
    const auto device = trainer::gpu_backend(trainer::gpu_options(config, {}));
    if (!device.ok()) {
      bench.report(row_without(job, std::string(device.status().message())));
      continue;
    }
    const auto run = run_of(config, *device);
    if (!run.ok()) {
      bench.report(row_without(job, std::string(run.status().message())));
      continue;
    }
    const StepRecord& step = run->median;
    Json row = {{"model", job.what},
                {"dtype", "bfloat16"},
                {"sequences", config.per_device_batch_size},
                {"seq_len", config.max_target_length},
                {"remat_policy", trainer::name_of(trainer::kRematPolicyNames, job.remat)},
                {"median_step_seconds", step.seconds},
                {"tokens_per_second", step.tokens_per_device / step.seconds},
                {"tflops_per_second", step.tflops_causal_per_device / step.seconds},
                {"seconds_to_first_step", run->seconds_to_first_step},
                {"peak_device_mib", static_cast<double>((*device)->peak_bytes()) / (1 << 20)}};
    if (bench.spec.bf16_tflops > 0)
      row["mfu"] = step.tflops_causal_per_device / step.seconds / bench.spec.bf16_tflops;
    row["step_seconds"] = run->step_seconds;
    bench.report(std::move(row));
    if (!job.without_graphs) continue;
    config.cuda_graphs = false;
    const auto without = run_of(config, *device);
    if (!without.ok()) {
      bench.report(row_without(job, std::string(without.status().message())));
      continue;
    }
    bench.report({{"model", job.what},
                  {"cuda_graphs", false},
                  {"median_step_seconds", without->median.seconds},
                  {"speedup_by_graphs", without->median.seconds / step.seconds}});
  }
}

void record_step(const Bench& bench) {
  const Job& job = kJobs[0];
  TrainConfig config = config_of(job, bench.small);
  config.cuda_graphs = false;
  config.profile.profiler = trainer::Profiler::kNsys;
  config.profile.skip_first_steps = kWarmUp;
  config.profile.steps = 1;
  config.steps = config.optimizer.schedule_steps = config.log_period = kWarmUp + 2;
  const auto device = trainer::gpu_backend(trainer::gpu_options(config, {}));
  const auto run = device.ok() ? run_of(config, *device) : absl::StatusOr<Run>(device.status());
  if (!run.ok()) return bench.report(row_without(job, std::string(run.status().message())));
  const trainer::ModelConfig& model = config.model;
  bench.report({{"model", job.what},
                {"layers", model.num_layers},
                {"width", model.emb_dim},
                {"heads", model.num_query_heads},
                {"kv_heads", model.num_kv_heads},
                {"head_dim", model.head_dim},
                {"mlp", model.mlp_dim},
                {"vocab", model.vocab_size},
                {"seq_len", config.max_target_length},
                {"sequences", config.per_device_batch_size}});
}

}  // namespace muster::bench
