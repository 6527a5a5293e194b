#include "jobspec/files/topology_names.h"

#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/unit/temp_folder.h"

namespace muster::jobspec {
namespace {

const std::vector<Topology>& shipped() {
  static const auto* const all =
      new std::vector<Topology>(all_topologies({source_dir() + "/configs/topologies"}));
  return *all;
}

std::string named(std::string_view name) {
  const auto topology = topology_named(name, shipped());
  return topology ? topology->name : "";
}

TEST(TopologyNamed, FindsTypesOfSlurm) {
  // The memory is open: that of the largest type is taken.
  EXPECT_EQ(named("h100"), "h100-96gb-500w");
  EXPECT_EQ(named("NVIDIA-H100-NVL"), "h100-96gb-500w");
  EXPECT_EQ(named("H200"), "h200");
  EXPECT_EQ(topology_named("nvidia_h100_80gb_hbm3", shipped())->device, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(topology_named("nvidia_a100-sxm4-40gb", shipped())->memory_mib, 40'337);
  EXPECT_EQ(named("a100-sxm4-80gb"), "a100");
  EXPECT_EQ(named("a100_pcie"), "a100");
  EXPECT_EQ(named("nvidia_l40s"), "l40s");
}

TEST(TopologyNamed, FindsLabelsOfKubernetesAndInstanceTypes) {
  EXPECT_EQ(topology_named("NVIDIA-H100-80GB-HBM3", shipped())->device, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(topology_named("nvidia-h100-80gb", shipped())->device, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(topology_named("nvidia-h200-141gb", shipped())->device, "NVIDIA H200");
  EXPECT_EQ(named("p5.48xlarge"), "p5");
  EXPECT_EQ(named("p5e.48xlarge"), "p5e");
  EXPECT_EQ(named("p4d.24xlarge"), "p4d");
  EXPECT_EQ(named("a3-highgpu-8g"), "a3-high");
  EXPECT_EQ(named("a3-megagpu-8g"), "a3-mega");
}

TEST(DenotesDevice, IsFalseForMachines) {
  for (const char* name : {"h100", "h100-pcie", "nvidia_h100_80gb_hbm3", "NVIDIA-H100-80GB-HBM3",
                           "a100", "nvidia-h200-141gb"})
    EXPECT_TRUE(denotes_device(name, *topology_named(name, shipped()))) << name;
  for (const char* name : {"p5.48xlarge", "p4d.24xlarge", "a3-megagpu-8g"})
    EXPECT_FALSE(denotes_device(name, *topology_named(name, shipped()))) << name;
}

TEST(TopologyNamed, RefusesOtherNames) {
  for (const char* name : {"", "-", "p5en.48xlarge", "h10", "h1000", "tesla", "nvidia", "gpu"})
    EXPECT_EQ(named(name), "") << name;
}

TEST(LargestTopology, IsOneOnWhichTheTrainerRuns) {
  const auto largest = largest_topology(shipped());
  ASSERT_TRUE(largest);
  EXPECT_TRUE(largest->has_backend);
  for (const Topology& topology : shipped()) {
    if (topology.has_backend) {
      EXPECT_LE(topology.memory_mib, largest->memory_mib);
    }
  }
  EXPECT_FALSE(largest_topology({}));
}

TEST(AllTopologies, PreferTheFirstFolderAndSkipFilesWithErrors) {
  const TempFolder own;
  write_file(own.path() + "/h100.yml",
             "device: NVIDIA H100 NVL\nmemory_mib: 95000\ndevices_per_node: 2\n");
  write_file(own.path() + "/broken.yml", "device: [\n");
  const auto all = all_topologies({own.path(), source_dir() + "/configs/topologies"});
  EXPECT_EQ(all.size(), shipped().size());
  EXPECT_EQ(topology_named("NVIDIA H100 NVL", all)->memory_mib, 95'000);
  EXPECT_FALSE(topology_named("cpu", all)) << "a node's GPUs are never CPUs";
}

// A run on this machine finds what was measured there, and no other machine's file.
TEST(MeasuredCpu, HasTheModelAndTheCores) {
  const TempFolder own;
  const std::string text =
      "device: Some CPU\nhardware: cpu\nmemory_mib: 1000\nranks_share_node: true\n";
  write_file(own.path() + "/guessed.yml", text + "devices_per_node: 4\n");
  write_file(own.path() + "/here.yml", text + "devices_per_node: 4\nmeasured: true\n");
  EXPECT_EQ(measured_cpu("Some CPU", 4, {own.path()})->name, "here");
  EXPECT_FALSE(measured_cpu("Some CPU", 8, {own.path()}));
  EXPECT_FALSE(measured_cpu("Other CPU", 4, {own.path()}));
}

}  // namespace
}  // namespace muster::jobspec
