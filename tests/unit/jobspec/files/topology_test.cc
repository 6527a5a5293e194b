#include "jobspec/files/topology.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::jobspec {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr char kNode[] = "device: NVIDIA H100\nmemory_mib: 81009\ndevices_per_node: 8\n";
const std::string kShipped = source_dir() + "/configs/topologies";

class TopologyFile : public testing::Test {
 protected:
  absl::StatusOr<PlannedMachines> machines(std::string_view text, int64_t slices = -1) const {
    return planned_machines(text, slices, {folder_.path()});
  }
  std::string problem(std::string_view text, int64_t slices = -1) const {
    return std::string(machines(text, slices).status().message());
  }
  std::string problem_of(const std::string& content) const {
    write_file(folder_.file("one.yml"), content);
    return std::string(read_topology(folder_.file("one.yml")).status().message());
  }

  TempFolder folder_;
};

TEST_F(TopologyFile, ANumberOfDevicesBecomesNodes) {
  write_file(folder_.file("h100.yml"), kNode);
  write_file(folder_.file("a100-40gb.yml"), kNode);
  write_file(folder_.file("v5p.yml"),
             "device: TPU\nmemory_mib: 98037\ndevices_per_node: 1024\ncores_per_device: 2\n");
  const struct {
    const char* text;
    int64_t slices;
    int32_t nodes, devices_per_node;
  } rows[] = {{"h100", -1, 1, 8},       {"h100-8", -1, 1, 8},     {"h100-64", -1, 8, 8},
              {"h100-64", 8, 64, 8},    {"h100-4", -1, 1, 4},     {"h100-1", 3, 3, 1},
              {"v5p-16", -1, 1, 8},     {"v5p-2048", 2, 2, 1024}, {"a100-40gb", -1, 1, 8},
              {"a100-40gb-16", 1, 2, 8}};
  for (const auto& row : rows) {
    const auto machines = this->machines(row.text, row.slices);
    ASSERT_TRUE(machines.ok()) << row.text << ": " << machines.status();
    EXPECT_EQ(machines->nodes, row.nodes) << row.text;
    EXPECT_EQ(machines->devices_per_node, row.devices_per_node) << row.text;
    EXPECT_EQ(machines->devices(), int64_t{row.nodes} * row.devices_per_node);
  }
}

TEST_F(TopologyFile, WhatIsNotANumberOfWholeNodesIsRefused) {
  write_file(folder_.file("h100.yml"), kNode);
  write_file(folder_.file("v4.yml"),
             "device: TPU\nmemory_mib: 100\ndevices_per_node: 4\ncores_per_device: 2\n");
  EXPECT_THAT(problem("h100-12"), HasSubstr("whole nodes of 8 devices: h100-8 or h100-16"));
  EXPECT_THAT(problem("h100-0"), HasSubstr("must be at least 1"));
  EXPECT_THAT(problem("h100-99999999999999999999"), HasSubstr("must be at least 1"));
  EXPECT_THAT(problem("h100-8000000"), HasSubstr("nodes; a job has up to"));
  EXPECT_THAT(problem("h100-64", 0), HasSubstr("compile_topology_num_slices=0: must be from 1"));
  EXPECT_THAT(problem("v4-7"), HasSubstr("a multiple of the 2 cores of a device"));
  EXPECT_THAT(problem("v4-12"), HasSubstr("whole nodes of 4 devices: v4-8 or v4-16"));
  EXPECT_THAT(problem("h10-64"), AllOf(HasSubstr("no such topology in " + folder_.path()),
                                       HasSubstr("the nearest of 2: h100")));
  for (const char* name : {"", "-", "../h100", "./h100-8", "h100-", "h100-x", ".h100"})
    EXPECT_FALSE(machines(name).ok()) << name;
  EXPECT_THAT(
      std::string(planned_machines("h100-8", -1, {folder_.file("none")}).status().message()),
      HasSubstr("there are no topologies in"));
}

TEST_F(TopologyFile, AnEarlierFolderWins) {
  write_file(folder_.file("h100.yml"), kNode);
  const auto own = planned_machines("h100-8", -1, {folder_.path(), kShipped});
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->topology.device, "NVIDIA H100");
  EXPECT_TRUE(planned_machines("h200-8", -1, {folder_.path(), kShipped}).ok());
}

TEST_F(TopologyFile, ErrorsNameTheKeyAndTheAllowedValues) {
  const struct {
    std::string content;
    const char* message;
  } rows[] = {
      {"memory_mib: 1\ndevices_per_node: 8\n", "one.yml: device is missing"},
      {"device: x\ndevices_per_node: 8\n", "one.yml: memory_mib is missing"},
      {"device: x\nmemory_mib: 1\n", "one.yml: devices_per_node is missing"},
      {"device: x\nmemory_mib: -1\n", "one.yml:2: memory_mib=-1: expected a number from 1 to"},
      {"device: x\nmemory_mib: 80 GB\n", "memory_mib=80 GB: expected a number"},
      {"device: x\nmemory_mib: 1e5\n", "memory_mib=1e5: expected a number"},
      {"device: x\nmemory_mib: [1]\n", "one.yml:2: memory_mib: expected a number"},
      {"device: ''\n", "one.yml:1: device="},
      {"devices_per_node: 0\n", "devices_per_node=0: expected a number from 1 to 1024"},
      {"devices_per_node: 1025\n", "devices_per_node=1025: expected a number from 1 to 1024"},
      {"cores_per_device: 100\n", "cores_per_device=100: expected a number from 1 to 64"},
      {"has_backend: perhaps\n", "has_backend=perhaps: expected true or false"},
      {"hardware: tpu\n", "one.yml:1: hardware=tpu: expected gpu or cpu"},
      {absl::StrCat(kNode, "ranks_share_node: true\n"),
       "ranks_share_node has an effect with hardware: cpu only"},
      {absl::StrCat(kNode, "bfloat16_speed: 1\n"),
       "bfloat16_speed has an effect with hardware: cpu"},
      {"bfloat16_speed: 0\n", "bfloat16_speed=0: expected a number above 0, up to 1000"},
      {"memory_mb: 1\n", "memory_mb=1: unknown key; did you mean memory_mib?"},
      {"colour: red\n", "colour=red: unknown key; the keys are device, memory_mib,"},
      {"a: b: c\n", "not YAML"},
      {"- a\n", "expected lines of the form"}};
  for (const auto& row : rows)
    EXPECT_THAT(problem_of(row.content), HasSubstr(row.message)) << row.content;
  EXPECT_FALSE(read_topology(folder_.file("absent.yml")).ok());
}

// Ranks of a CPU divide its cores: a single one has all of them.
TEST_F(TopologyFile, RanksShareANode) {
  write_file(folder_.file("own.yml"),
             "device: x\nmemory_mib: 1000\ndevices_per_node: 4\nhardware: cpu\n"
             "ranks_share_node: true\nfp32_tflops: 0.1\nbf16_tflops: 0.05\nmemory_gb_s: 5\n"
             "host_gb_s: 2\nnode_gb_s: 3\nnode_latency_us: 9\nmeasured_power_w: 10\n");
  const auto all = machines("own"), two = machines("own-2"), one = machines("own-1");
  ASSERT_TRUE(all.ok() && two.ok() && one.ok());
  EXPECT_EQ(all->topology.memory_mib, 1000);
  EXPECT_EQ(one->topology.memory_mib, 4000);
  EXPECT_DOUBLE_EQ(*all->topology.number("fp32_tflops"), 0.1);
  EXPECT_DOUBLE_EQ(*two->topology.number("fp32_tflops"), 0.2);
  EXPECT_DOUBLE_EQ(*one->topology.number("fp32_tflops"), 0.4);
  EXPECT_DOUBLE_EQ(*one->topology.number("measured_power_w"), 40);
  EXPECT_DOUBLE_EQ(*one->topology.number("node_latency_us"), 9);
  EXPECT_DOUBLE_EQ(*with_ranks_per_node(one->topology, 2).number("memory_gb_s"), 10);
}

// Nine ranks on 16 cores have one core each, and divide the complete network and power.
TEST_F(TopologyFile, IdleCoresLeaveNoNetworkIdle) {
  write_file(folder_.file("own.yml"),
             "device: x\nmemory_mib: 900\ndevices_per_node: 16\nhardware: cpu\n"
             "ranks_share_node: true\nmemory_gb_s: 5\nnode_gb_s: 3\nnetwork_gb_s: 2.25\n"
             "network_latency_us: 9\nmeasured_power_w: 9\n");
  const auto own = read_topology(folder_.file("own.yml"));
  ASSERT_TRUE(own.ok()) << own.status();
  const Topology nine = with_ranks_per_node(*own, 9);
  EXPECT_DOUBLE_EQ(*nine.number("network_gb_s"), 4);
  EXPECT_DOUBLE_EQ(*nine.number("measured_power_w"), 16);
  EXPECT_DOUBLE_EQ(*nine.number("memory_gb_s"), 5);
  EXPECT_DOUBLE_EQ(*nine.number("node_gb_s"), 3);
  EXPECT_DOUBLE_EQ(*nine.number("network_latency_us"), 9);
}

// A job that does not use a link does not need its speed.
TEST_F(TopologyFile, TimesNeedTheLinksOfTheJob) {
  write_file(folder_.file("one.yml"), std::string(kNode) +
                                          "fp32_tflops: 1\nbf16_tflops: 1\nmemory_gb_s: 1\n"
                                          "host_gb_s: 1\n");
  EXPECT_TRUE(machines("one-1")->has_times());
  EXPECT_THAT(machines("one-2")->missing_times(),
              testing::ElementsAre("node_gb_s", "node_latency_us"));
  EXPECT_THAT(machines("one-1", 2)->missing_times(),
              testing::ElementsAre("network_gb_s", "network_latency_us"));
}

// The machines that users plan for by MaxText's, AWS's and Google Cloud's names.
TEST(ShippedTopologies, AreValid) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(kShipped)) {
    const auto topology = read_topology(entry.path());
    ASSERT_TRUE(topology.ok()) << topology.status();
    names.insert(topology->name);
    EXPECT_EQ(topology->has_backend, topology->is_cpu || topology->device.starts_with("NVIDIA"))
        << topology->name;
    EXPECT_GE(topology->memory_mib, topology->is_cpu ? 4'000 : 15'000) << topology->name;
  }
  for (const char* name : {"h100", "h200", "a100", "a100-40gb", "b200", "gb200", "p5", "p5e", "p4d",
                           "a3-high", "a3-mega", "a3-ultra", "mi300x", "v4", "v5e", "v5p", "v6e"})
    EXPECT_TRUE(names.contains(name)) << name;
}

}  // namespace
}  // namespace muster::jobspec
