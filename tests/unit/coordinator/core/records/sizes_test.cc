#include "coordinator/core/records/sizes.h"

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

JobSpec trainer_of_sizes() {
  JobSpec spec;
  spec.nodes = 8;
  spec.ranks_per_node = 2;
  spec.min_nodes = 2;
  spec.train_config_json = "eight";
  spec.smaller = {{4, "four"}, {2, "two"}};
  return spec;
}

TEST(Sizes, ATrainerHasThoseThatWereResolved) {
  const JobSpec spec = trainer_of_sizes();
  EXPECT_EQ(smallest_size(spec), 2);
  const std::pair<int64_t, int32_t> largest[] = {{100, 8}, {8, 8}, {7, 4}, {4, 4},
                                                 {3, 2},   {2, 2}, {1, 0}, {0, 0}};
  for (const auto& [nodes_max, size] : largest)
    EXPECT_EQ(largest_size(spec, nodes_max), size) << nodes_max;
}

TEST(Sizes, AProgramHasAnyNumber) {
  JobSpec spec;
  spec.nodes = 5;
  spec.min_nodes = 3;
  spec.command = {"train.py"};
  const std::pair<int64_t, int32_t> largest[] = {{9, 5}, {4, 4}, {3, 3}, {2, 0}};
  for (const auto& [nodes_max, size] : largest)
    EXPECT_EQ(largest_size(spec, nodes_max), size) << nodes_max;
  spec.min_nodes = 0;
  EXPECT_EQ(smallest_size(spec), 5);
  EXPECT_EQ(largest_size(spec, 4), 0);
}

TEST(Sizes, AWorkerReceivesTheSizeThatRuns) {
  const JobSpec sized = spec_of_size(trainer_of_sizes(), 4);
  EXPECT_EQ(sized.nodes, 4);
  EXPECT_EQ(sized.world_size(), 8);
  EXPECT_EQ(sized.train_config_json, "four");
  EXPECT_TRUE(sized.smaller.empty()) << "16 configs to thousands of workers";
  EXPECT_EQ(spec_of_size(trainer_of_sizes(), 8).train_config_json, "eight");
}

}  // namespace
}  // namespace muster::coordinator
