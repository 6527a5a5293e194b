// Measures all-reduces of fp32 between ranks of this process. The bus bandwidth is what each rank
// must send and receive in the time (NCCL-tests' PERFORMANCE.md): bytes · 2 (n - 1) / n.
#include <algorithm>
#include <limits>
#include <sstream>
#include <thread>
#include <vector>

#include "bench/gpu/gpu_bench.h"
#include "common/time/time.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/startup/choose_backend.h"

namespace muster::bench {
namespace {

using trainer::DType;

// One rank's measurements. The first rank's times hold for all, because each iteration ends with a
// barrier.
struct Measured {
  Json rows = Json::array();
  std::string how;    // "collectives: NCCL"
  std::string error;  // empty if none
};

absl::Status measure(trainer::ProcessGroup& group, const trainer::Backend& device, bool small,
                     Json& rows) {
  constexpr int kIterations = 5;
  for (size_t bytes = size_t{1} << 20; bytes <= (size_t{1} << (small ? 20 : 29)); bytes *= 8) {
    const auto room = device.memory().allocate(bytes);
    const trainer::BufferView numbers{room.get(), bytes / sizeof(float), DType::kF32};
    double best = std::numeric_limits<double>::infinity();
    for (int iteration = 0; iteration <= kIterations;
         ++iteration) {  // the first iteration connects
      if (auto status = group.barrier("iteration"); !status.ok()) return status;
      const Instant began = monotonic_now();
      if (auto status = group.all_reduce(numbers, "bench"); !status.ok()) return status;
      if (auto status = group.barrier("end of the iteration"); !status.ok()) return status;
      if (iteration > 0) best = std::min(best, to_seconds(monotonic_now() - began));
    }
    const auto ranks = static_cast<double>(group.size());
    rows.push_back({{"mib", bytes >> 20},
                    {"ms", best * 1e3},
                    {"bus_gb_per_second",
                     static_cast<double>(bytes) * 2 * (ranks - 1) / ranks / best * 1e-9}});
  }
  return absl::OkStatus();
}

}  // namespace

void measure_collectives(const Bench& bench) {
  const int ranks = std::max(2, trainer::gpu_count());
  // Only the mesh matters; the model is minimal.
  trainer::TrainConfig config;
  config.hardware = trainer::Hardware::kGpu;
  config.mesh.ici[static_cast<size_t>(MeshAxis::kData)] = ranks;
  config.model.vocab_size = 8;
  config.model.emb_dim = config.model.mlp_dim = 8;
  config.model.num_layers = config.model.num_query_heads = config.model.num_kv_heads = 1;
  config.model.head_dim = 8;
  config.max_target_length = 8;
  config.steps = config.optimizer.schedule_steps = 1;
  config.enable_checkpointing = false;
  const trainer::LocalWorld world(ranks, std::chrono::minutes(2));
  std::vector<Measured> measured(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Measured& mine = measured[static_cast<size_t>(rank)];
      // Joins before it opens the device: a rank that finds none leaves the world on return, so
      // that the others do not wait for it.
      auto transport = world.join(rank);
      const auto device = trainer::gpu_backend({.rank_of_node = rank});
      if (!device.ok()) {
        mine.error = std::string(device.status().message());
        return;
      }
      const auto page = ProgressWriter::anonymous({.rank = rank, .world_size = ranks});
      trainer::ProcessGroups groups(std::move(transport), trainer::mesh_of(config.mesh), page.get(),
                                    (*device)->memory());
      trainer::StopSignals signals;
      std::ostringstream out, err;
      const auto ready = trainer::prepare_devices(config, {.groups = groups,
                                                           .page = *page,
                                                           .out = out,
                                                           .err = err,
                                                           .signals = signals,
                                                           .on_step = nullptr,
                                                           .backend = *device});
      absl::Status status = ready.status();
      if (status.ok()) status = measure(groups.world(), **device, bench.small, mine.rows);
      mine.how = out.str();
      if (!status.ok()) mine.error = std::string(status.message());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Measured& of : measured)
    if (!of.error.empty()) return bench.report({{"error", of.error}});
  std::string how = measured[0].how;
  if (!how.empty()) how.pop_back();  // removes the newline
  for (const Json& row : measured[0].rows) {
    Json reported = {{"ranks", ranks}, {"how", how}};
    reported.update(row);
    bench.report(std::move(reported));
  }
}

}  // namespace muster::bench
