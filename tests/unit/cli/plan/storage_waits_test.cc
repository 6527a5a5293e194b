#include "cli/plan/storage_waits.h"

#include <gtest/gtest.h>

#include "trainer_core/base/mesh_rules.h"

namespace muster::cli {
namespace {

// Two nodes of two ranks.
trainer::TrainConfig config_of_four() {
  trainer::TrainConfig config;
  config.mesh.ici[static_cast<size_t>(MeshAxis::kFsdp)] = 2;
  config.mesh.dcn[static_cast<size_t>(MeshAxis::kData)] = 2;
  config.dataset_type = trainer::DatasetType::kShards;
  config.per_device_batch_size = 2;
  config.max_target_length = 1000;
  config.checkpoint_period = 10;
  return config;
}

jobspec::Topology with_rates(double host, double storage) {
  jobspec::Topology topology;
  if (host > 0) topology.numbers["host_gb_s"] = host;
  if (storage > 0) topology.numbers["storage_gb_s"] = storage;
  return topology;
}

// The two ranks of the first node have the whole checkpoint; those of the second one are replicas.
TEST(StorageWaits, RanksOfOneReplicaCopyTheirPartsAndItsNodesWriteThem) {
  trainer::TrainConfig config = config_of_four();
  StorageWaits waits = storage_waits(config, with_rates(2, 1), 1, 8e9);
  EXPECT_NEAR(waits.save_stall_seconds, 2, 1e-9);  // 4 GB of a rank at 2 GB/s
  EXPECT_NEAR(waits.checkpoint_seconds, 0.2, 1e-9) << "8 s of writing are over after 10 steps";
  config.checkpoint_period = 2;
  waits = storage_waits(config, with_rates(2, 1), 1, 8e9);
  EXPECT_NEAR(waits.checkpoint_seconds, (2 + (8 - 2)) / 2.0, 1e-9);
  config.async_checkpointing = false;
  waits = storage_waits(config, with_rates(2, 1), 1, 8e9);
  EXPECT_NEAR(waits.save_stall_seconds, 8, 1e-9);
  EXPECT_NEAR(waits.checkpoint_seconds, 4, 1e-9);
  config.enable_checkpointing = false;
  EXPECT_EQ(storage_waits(config, with_rates(2, 1), 1, 8e9).checkpoint_seconds, 0);
}

TEST(StorageWaits, ANodeReadsItsSequencesWhileItComputes) {
  trainer::TrainConfig config = config_of_four();
  // A node has 4 sequences of 4 kB.
  EXPECT_NEAR(storage_waits(config, with_rates(1, 4e-6), 1, 0).data_seconds, 4 - 1, 1e-9);
  EXPECT_EQ(storage_waits(config, with_rates(1, 4e-6), 5, 0).data_seconds, 0);
  trainer::TrainConfig pipeline =
      config;  // both nodes have the same sequences, half as many in all
  pipeline.mesh.dcn[static_cast<size_t>(MeshAxis::kData)] = 1;
  pipeline.mesh.dcn[static_cast<size_t>(MeshAxis::kPipeline)] = 2;
  EXPECT_NEAR(storage_waits(pipeline, with_rates(1, 4e-6), 1, 0).data_seconds, 4 - 1, 1e-9);
  config.dataset_type = trainer::DatasetType::kSynthetic;
  EXPECT_EQ(storage_waits(config, with_rates(1, 4e-6), 1, 0).data_seconds, 0);
}

TEST(StorageWaits, AreZeroWithoutRates) {
  const StorageWaits waits = storage_waits(config_of_four(), with_rates(0, 0), 1, 8e9);
  EXPECT_EQ(waits.data_seconds, 0);
  EXPECT_EQ(waits.save_stall_seconds, 0);
  EXPECT_EQ(waits.checkpoint_seconds, 0);
}

}  // namespace
}  // namespace muster::cli
