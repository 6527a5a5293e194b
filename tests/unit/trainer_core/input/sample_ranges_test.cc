#include "trainer_core/input/sample_ranges.h"

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

TEST(SampleRanges, OneDataSetNeedsNoNames) {
  TrainConfig config;
  EXPECT_EQ(describe_samples(config, 96, 168), "global samples 96 to 167");
  config.dataset_type = DatasetType::kShards;
  config.dataset_path = "/data/a";
  EXPECT_EQ(describe_samples(config, 96, 97), "global samples 96 to 96");
}

TEST(SampleRanges, AMixtureNamesTheSamplesOfEachDataSet) {
  TrainConfig config;
  config.dataset_type = DatasetType::kShards;
  config.dataset_path = "/data/a,2;/data/b,1";
  EXPECT_EQ(describe_samples(config, 96, 168),
            "global samples 96 to 167 (48 of /data/a: 64 to 111; 24 of /data/b: 32 to 55)");
  config.dataset_path = "/data/a,1000;/data/b,1";
  EXPECT_EQ(describe_samples(config, 0, 2), "global samples 0 to 1 (2 of /data/a: 0 to 1)");
}

}  // namespace
}  // namespace muster::trainer
