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
  // 4 GB of a rank take 2 s at 2 GB/s, of which the passes of a step hide 0.75 s.
  const StepSeconds step{.all = 1, .update = 0.25};
  StorageWaits waits = storage_waits(config, with_rates(2, 1), step, 8e9);
  EXPECT_NEAR(waits.save_stall_seconds, 2 - 0.75, 1e-9);
  EXPECT_NEAR(waits.save_seconds, 2 + 8, 1e-9);
  EXPECT_NEAR(waits.checkpoint_seconds, 0.125, 1e-9) << "8 s of writing are over after 10 steps";
  EXPECT_EQ(storage_waits(config, with_rates(2, 1), {.all = 3}, 8e9).save_stall_seconds, 0)
      << "the passes hide the copy";
  config.checkpoint_period = 2;
  waits = storage_waits(config, with_rates(2, 1), step, 8e9);
  EXPECT_NEAR(waits.checkpoint_seconds, (10 - 2) / 2.0, 1e-9) << "a save takes 10 s, 2 steps 2 s";
  config.async_checkpointing = false;
  waits = storage_waits(config, with_rates(2, 1), {.all = 1}, 8e9);
  EXPECT_NEAR(waits.save_stall_seconds, 8, 1e-9);
  EXPECT_NEAR(waits.checkpoint_seconds, 4, 1e-9);
  config.enable_checkpointing = false;
  EXPECT_EQ(storage_waits(config, with_rates(2, 1), {.all = 1}, 8e9).checkpoint_seconds, 0);
}

TEST(StorageWaits, ANodeReadsItsSequencesWhileItComputes) {
  trainer::TrainConfig config = config_of_four();
  // A node has 4 sequences of 4 kB.
  EXPECT_NEAR(storage_waits(config, with_rates(1, 4e-6), {.all = 1}, 0).data_seconds, 4 - 1, 1e-9);
  EXPECT_EQ(storage_waits(config, with_rates(1, 4e-6), {.all = 5}, 0).data_seconds, 0);
  trainer::TrainConfig pipeline =
      config;  // both nodes have the same sequences, half as many in all
  pipeline.mesh.dcn[static_cast<size_t>(MeshAxis::kData)] = 1;
  pipeline.mesh.dcn[static_cast<size_t>(MeshAxis::kPipeline)] = 2;
  EXPECT_NEAR(storage_waits(pipeline, with_rates(1, 4e-6), {.all = 1}, 0).data_seconds, 4 - 1,
              1e-9);
  config.dataset_type = trainer::DatasetType::kSynthetic;
  EXPECT_EQ(storage_waits(config, with_rates(1, 4e-6), {.all = 1}, 0).data_seconds, 0);
}

// A saved plan has the time to read the data, and its run may have other data.
TEST(StorageWaits, TheDataOfTheRunDeterminesItsWait) {
  trainer::TrainConfig config = config_of_four();
  config.dataset_type = trainer::DatasetType::kSynthetic;
  const double read = storage_waits(config, with_rates(1, 4e-6), {.all = 1}, 0).read_seconds;
  EXPECT_NEAR(read, 4, 1e-9);
  EXPECT_EQ(data_wait(config, read, 1), 0);
  config.dataset_type = trainer::DatasetType::kShards;
  EXPECT_NEAR(data_wait(config, read, 1), 3, 1e-9);
}

TEST(StorageWaits, TheUpdateIsAPartOfAStep) {
  const nlohmann::json time = {
      {"seconds", 2.0},
      {"parts",
       {{{"name", "ideal GEMMs"}, {"seconds", 1.5}}, {{"name", "optimizer"}, {"seconds", 0.5}}}}};
  EXPECT_EQ(step_seconds_of(time).all, 2);
  EXPECT_EQ(step_seconds_of(time).update, 0.5);
  EXPECT_EQ(step_seconds_of(nlohmann::json()).all, 0);
}

TEST(StorageWaits, AreZeroWithoutRates) {
  const StorageWaits waits = storage_waits(config_of_four(), with_rates(0, 0), {.all = 1}, 8e9);
  EXPECT_EQ(waits.data_seconds, 0);
  EXPECT_EQ(waits.save_stall_seconds, 0);
  EXPECT_EQ(waits.checkpoint_seconds, 0);
}

}  // namespace
}  // namespace muster::cli
