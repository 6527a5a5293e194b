#include "trainer_core/forecast/bench_models.h"

#include <array>
#include <utility>
#include <vector>

#include "common/job/mesh.h"
#include "common/random/philox.h"
#include "common/time/time.h"
#include "trainer_core/startup/initial_parameters.h"

namespace muster::trainer {
namespace {

constexpr std::array<BenchModel, 4> kBenchModels = {{
    {256, 2, 4, 704, 4096, 256, 8, true},
    {512, 2, 8, 1408, 8192, 512, 2, true},
    {1024, 1, 8, 2816, 8192, 1024, 1, true},
    {384, 3, 6, 1024, 8192, 384, 4, false},
}};

std::vector<int32_t> some_tokens(int64_t count, int32_t vocabulary) {
  const Philox philox{.key = 1, .stream = 0};
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(philox(static_cast<uint64_t>(i))[0] %
                                          static_cast<uint32_t>(vocabulary)));
  return tokens;
}

}  // namespace

std::span<const BenchModel> bench_models() { return kBenchModels; }

int32_t scale_for_peak(double peak_tflops) {
  constexpr double kManyCores = 1, kGpu = 20;
  return peak_tflops > kGpu ? 4 : peak_tflops > kManyCores ? 2 : 1;
}

TrainConfig bench_config(const BenchModel& model, int32_t scale, ComputeType dtype) {
  TrainConfig config;
  config.run_name = "bench";
  config.model = {.name = "bench",
                  .vocab_size = model.vocabulary,
                  .emb_dim = model.emb_dim * scale,
                  .num_layers = model.layers,
                  .num_query_heads = model.heads * scale,
                  .num_kv_heads = model.heads * scale,
                  .head_dim = model.emb_dim / model.heads,
                  .mlp_dim = model.mlp_dim * scale};
  config.dtype = dtype;
  config.cuda_graphs = false;  // a replay hides the operations
  config.steps = 1;
  config.enable_checkpointing = false;
  config.remat_policy = RematPolicy::kNone;
  config.max_target_length = model.tokens;
  config.per_device_batch_size = model.sequences * scale;
  return config;
}

TrainConfig shared_step_config(int32_t ranks, ComputeType dtype, int32_t scale) {
  TrainConfig config = bench_config(kBenchModels[1], scale, dtype);
  config.mesh.ici[static_cast<size_t>(MeshAxis::kFsdp)] = ranks;
  return config;
}

BenchRun::BenchRun(const TrainConfig& config, std::shared_ptr<Backend> backend,
                   ProcessGroups& groups)
    : config_(config),
      groups_(groups),
      rank_model_(config, std::move(backend), Staging::kNo, groups, nullptr) {
  draw_parameters(rank_model_.ops(), config, rank_model_.plan().model.sharding.layout,
                  rank_model_.model().parameters());
  rank_model_.parameters_changed();
  options_.tokens = some_tokens(rank_model_.plan().model.token_count(), config.model.vocab_size);
}

absl::StatusOr<double> BenchRun::step() {
  const Instant begin = monotonic_now();
  if (auto status = run_step(config_, rank_model_, groups_, options_); !status.ok()) return status;
  return to_seconds(monotonic_now() - begin);
}

}  // namespace muster::trainer
