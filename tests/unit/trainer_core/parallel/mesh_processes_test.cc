// Ranks that are processes and communicate over TCP train like one rank.
#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <optional>

#include "tests/unit/trainer_core/comm/forked_ranks.h"
#include "tests/unit/trainer_core/comm/store_server.h"
#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_configs.h"
#include "tests/unit/trainer_core/parallel/mesh_trainer.h"
#include "trainer_core/comm/gloo.h"

namespace muster::trainer {
namespace {

// Buffers that processes forked from this one write, too.
class SharedFloats {
 public:
  explicit SharedFloats(size_t count)
      : count_(count),
        data_(mmap(nullptr, count * sizeof(float), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (data_ == MAP_FAILED) _exit(2);
  }
  ~SharedFloats() { munmap(data_, count_ * sizeof(float)); }
  std::span<float> numbers() const { return {static_cast<float*>(data_), count_}; }

 private:
  size_t count_;
  void* data_;
};

MeshRun run_rank(const TrainConfig& config, int rank, const std::string& store,
                 std::span<float> params) {
  std::signal(SIGPIPE, SIG_IGN);
  const auto transport = connect_gloo({.rank = rank,
                                       .size = kMeshRanks,
                                       .rendezvous = store,
                                       .scope = "7/1/",
                                       .timeout = std::chrono::minutes(1)});
  if (!transport.ok()) return {.steps = {}, .params = {}, .status = transport.status(), .sent = {}};
  ProcessGroups groups(*transport, mesh_of(config.mesh), nullptr);
  return MeshTrainer::run_rank(config, groups, params);
}

// Like MeshTrainer::run, but this process is only rank 0.
MeshRun run_processes(const TrainConfig& config) {
  const SharedFloats params(MeshTrainer::parameters_of(config));
  const ForkedRanks others(kMeshRanks, [&](int rank, const std::string& store) {
    const MeshRun run = run_rank(config, rank, store, params.numbers());
    if (!run.status.ok()) std::cerr << "rank " << rank << ": " << run.status << std::endl;
    return run.status.ok() ? 0 : 1;
  });
  const StoreServer store;
  others.set_address(store.address());
  MeshRun run = run_rank(config, 0, store.address(), params.numbers());
  for (int rank = 1; rank < kMeshRanks; ++rank) EXPECT_EQ(others.wait_for(rank), 0) << rank;
  run.params.assign(params.numbers().begin(), params.numbers().end());
  return run;
}

TEST(MeshProcesses, TrainAsOneRankDoes) {
  using enum MeshAxis;
  TrainConfig single = config_of(sharded_glam(), {});
  single.model.num_layers = 4;
  const MeshRun alone = MeshTrainer::run(single);
  for (const MeshShape& shape :
       {mesh({{kFsdp, 8}}), mesh({{kData, 2}, {kFsdp, 2}, {kTensor, 2}}),
        mesh({{kFsdp, 2}, {kExpert, 4}}), mesh({{kFsdp, 2}, {kSequence, 2}, {kContext, 2}}),
        mesh({{kPipeline, 2}, {kContext, 2}, {kExpert, 2}})}) {
    TrainConfig config = config_of(sharded_glam(), shape);
    config.model.num_layers = 4;
    const MeshRun run = run_processes(config);
    expect_same_training(run, alone, mesh_of(shape).to_string());
    ASSERT_FALSE(HasFatalFailure());
  }
}

}  // namespace
}  // namespace muster::trainer
