#include "cli/slurm/slurm_queue.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr char kPartitions[] =
    "PartitionName=main AllowGroups=ALL Default=YES QoS=N/A MaxNodes=UNLIMITED Nodes=node[1-4] "
    "State=UP TotalCPUs=32 TotalNodes=4 SelectTypeParameters=NONE\n"
    "PartitionName=big Default=NO MaxNodes=UNLIMITED TotalNodes=100 Nodes=b[1-100]\n";

TEST(SlurmPartitions, AreReadFromScontrol) {
  const auto partitions = parse_slurm_partitions(kPartitions);
  ASSERT_EQ(partitions.size(), 2U);
  EXPECT_EQ(partitions[0].name, "main");
  EXPECT_TRUE(partitions[0].is_default);
  EXPECT_EQ(partitions[0].nodes, 4);
  EXPECT_FALSE(partitions[1].is_default);
  EXPECT_EQ(partitions[1].nodes, 100);
}

TEST(TooManyNodes, IsMoreThanAnyNamedPartitionHas) {
  const auto partitions = parse_slurm_partitions(kPartitions);
  EXPECT_EQ(too_many_nodes(partitions, "", 4), "");
  EXPECT_EQ(too_many_nodes(partitions, "", 9), "the job needs 9 nodes, but partition main has 4");
  EXPECT_EQ(too_many_nodes(partitions, "main,big", 9), "");
  EXPECT_EQ(too_many_nodes(partitions, "main,big", 101),
            "the job needs 101 nodes, but partition big has 100");
  // Slurm itself reports an unknown partition.
  EXPECT_EQ(too_many_nodes(partitions, "nowhere", 9), "");
}

TEST(SlurmGpus, AreThoseOfThePartitionsNodes) {
  constexpr char kNodes[] =
      "main*|2|gpu:h100:8(S:0-1,3),nic:2\nmain*|1|gpu:a:2,gpu:b:2\nmain*|1|(null)\n"
      "big|3|gpu:4\nbroken\n";
  EXPECT_THAT(parse_slurm_gpus(kNodes, ""), ElementsAre(8, 8, 4, 0));
  EXPECT_THAT(parse_slurm_gpus(kNodes, "big"), ElementsAre(4, 4, 4));
  EXPECT_THAT(parse_slurm_gpus(kNodes, "main,big"), SizeIs(7));
  EXPECT_THAT(parse_slurm_gpus("main*|1|gpu:99999999\n", ""), ElementsAre(256));
  EXPECT_THAT(parse_slurm_gpus("", ""), IsEmpty());
}

TEST(SlurmGpuTypes, AreThoseOfThePartitionsNodes) {
  constexpr char kNodes[] =
      "main*|2|gpu:h100:8(S:0-1,3),nic:2\nmain*|1|gpu:a:2,gpu:b:0\nmain*|0|gpu:c:2\n"
      "big|3|gpu:4\nbroken\n";
  EXPECT_THAT(parse_slurm_gpu_types(kNodes, ""), ElementsAre("a", "h100"));
  EXPECT_THAT(parse_slurm_gpu_types(kNodes, "big"), ElementsAre(""));
  EXPECT_THAT(parse_slurm_gpu_types(kNodes, "none"), IsEmpty());
}

TEST(StartedJobs, AreThoseThatAreNotPending) {
  EXPECT_TRUE(started_jobs("").empty());
  EXPECT_EQ(started_jobs("RUNNING 12_3 15\nPENDING 12_[4-9] 12\nCOMPLETING 7 7\nRUNNING 20+0 20\n"),
            (std::set<std::string>{"12_3", "15", "7", "20+0", "20"}));
}

TEST(WaitingText, NamesReasonsThatDoNotResolveThemselves) {
  EXPECT_EQ(waiting_text(""), "");
  EXPECT_EQ(waiting_text("None\n"), "");
  EXPECT_EQ(waiting_text("Priority\n"), "it waits (Priority)");
  EXPECT_THAT(waiting_text("PartitionTimeLimit"),
              HasSubstr("cannot start until something is changed (PartitionTimeLimit: "));
}

}  // namespace
}  // namespace muster::cli
