#include "cli/plan/admission.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace muster::cli {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

v1::WorkerInfo& add_worker(v1::ListWorkersResponse& workers, const std::string& gpu,
                           std::vector<uint64_t> gigabytes) {
  v1::WorkerInfo& worker = *workers.add_workers();
  worker.set_connected(true);
  for (const uint64_t size : gigabytes) {
    v1::Gpu& added = *worker.add_gpus();
    added.set_name(gpu);
    added.set_memory_bytes(size * kGiB);
  }
  return worker;
}

std::vector<jobspec::Topology> topologies() {
  jobspec::Topology h100, b200, tpu;
  h100.name = "h100", h100.device = "NVIDIA H100 80GB HBM3", h100.memory_mib = 81'009;
  b200.name = "b200", b200.device = "NVIDIA B200", b200.memory_mib = 182'630;
  tpu.name = "v9", tpu.device = "TPU v9", tpu.memory_mib = 1'000'000, tpu.has_backend = false;
  return {b200, h100, tpu};
}

int64_t memory_of_workers(const v1::ListWorkersResponse& workers, int32_t nodes,
                          int32_t ranks_per_node = 1) {
  v1::JobSpec spec;
  spec.set_nodes(nodes);
  spec.set_ranks_per_node(ranks_per_node);
  spec.set_gpus_per_rank(-1);
  const auto type = gpu_type_of_workers(workers, spec, topologies(), "here");
  return type ? type->topology.memory_mib : 0;
}

TEST(GpuTypeOfWorkers, IsThatOfTheSmallestNodeThatTheJobNeeds) {
  v1::ListWorkersResponse workers;
  EXPECT_EQ(memory_of_workers(workers, 1), 0);
  add_worker(workers, "", {});
  EXPECT_EQ(memory_of_workers(workers, 1), 0);
  add_worker(workers, "small", {24, 24});
  add_worker(workers, "large", {96, 80});
  add_worker(workers, "away", {200}).set_connected(false);
  add_worker(workers, "leaving", {200}).set_leaving(true);
  EXPECT_EQ(memory_of_workers(workers, 1), 96 * 1024);
  // The smaller GPU of the node limits a job of two ranks per node.
  EXPECT_EQ(memory_of_workers(workers, 1, 2), 80 * 1024);
  EXPECT_EQ(memory_of_workers(workers, 1, 8), 80 * 1024);
  EXPECT_EQ(memory_of_workers(workers, 2), 24 * 1024);
  // Workers that have not connected yet may be like the known ones.
  EXPECT_EQ(memory_of_workers(workers, 9), 24 * 1024);
}

TEST(GpuTypeOfWorkers, TakesTheMemoryOfAKnownDevice) {
  v1::ListWorkersResponse workers;
  add_worker(workers, "NVIDIA H100 80GB HBM3", {85});
  EXPECT_EQ(memory_of_workers(workers, 1), 81'009);
}

TEST(GpuTypeOfWorkers, HasNoNetworkIfTopologiesOfTheDeviceDiffer) {
  v1::ListWorkersResponse workers;
  add_worker(workers, "NVIDIA H100 80GB HBM3", {85});
  jobspec::Topology ethernet = topologies()[1], infiniband = topologies()[1];
  ethernet.name = "a3-high", ethernet.numbers = {{"network_gb_s", 12.5}, {"host_gb_s", 55}};
  infiniband.numbers = {{"network_gb_s", 50}, {"host_gb_s", 55}};
  const auto numbers = [&](int32_t nodes) {
    v1::JobSpec spec;
    spec.set_nodes(nodes);
    spec.set_ranks_per_node(1);
    const auto type = gpu_type_of_workers(workers, spec, {ethernet, infiniband}, "here");
    return type ? type->topology.numbers : std::map<std::string, double>();
  };
  EXPECT_EQ(numbers(1), ethernet.numbers);
  EXPECT_EQ(numbers(2), (std::map<std::string, double>{{"host_gb_s", 55}}));
}

v1::JobSpec spec_with(const char* hardware) {
  v1::JobSpec spec;
  spec.set_gpus_per_rank(-1);
  spec.set_train_config_json(nlohmann::json{{"hardware", hardware}}.dump());
  return spec;
}

TEST(HasGpuPlan, IsTrueForTrainersWithGpusOfTheirOwn) {
  EXPECT_TRUE(has_gpu_plan({}, spec_with("gpu")));
  EXPECT_FALSE(has_gpu_plan({}, spec_with("cpu")));
  v1::JobSpec shares = spec_with("gpu");
  shares.set_gpus_per_rank(0);
  EXPECT_FALSE(has_gpu_plan({}, shares));
  v1::JobSpec program = spec_with("gpu");
  program.add_command("true");
  EXPECT_FALSE(has_gpu_plan({}, program));
  JobArguments no_plan;
  no_plan.no_plan = true;
  EXPECT_FALSE(has_gpu_plan(no_plan, spec_with("gpu")));
}

TEST(MayHaveGpus, IsFalseForAutomaticHardwareWithoutGpus) {
  EXPECT_TRUE(may_have_gpus(spec_with("auto"), 8));
  EXPECT_FALSE(may_have_gpus(spec_with("auto"), 0));
  EXPECT_TRUE(may_have_gpus(spec_with("gpu"), 0));
}

std::string type_of_names(const std::vector<std::string>& names) {
  const auto type = gpu_type_of_names(names, topologies(), "as Slurm reports", 1);
  return type ? type->topology.name : "";
}

TEST(GpuTypeOfNames, IsTheLargestThatMayBeMeant) {
  EXPECT_EQ(type_of_names({"h100"}), "h100");
  EXPECT_EQ(type_of_names({"h100", "b200"}), "b200");
  // The trainer does not run on v9.
  EXPECT_EQ(type_of_names({}), "b200");
  EXPECT_EQ(type_of_names({"h100", "unknown"}), "b200");
  EXPECT_EQ(type_of_names({""}), "b200");
  EXPECT_FALSE(gpu_type_of_names({}, {}, "", 1));
}

TEST(GpuTypeOfNames, HasTheNetworkOfANamedMachineOnly) {
  jobspec::Topology ethernet = topologies()[1], infiniband = topologies()[1];
  ethernet.name = "a3-high", ethernet.numbers = {{"network_gb_s", 12.5}, {"host_gb_s", 55}};
  infiniband.numbers = {{"network_gb_s", 50}, {"host_gb_s", 55}};
  const auto numbers = [&](const char* name, int32_t nodes) {
    return gpu_type_of_names({name}, {ethernet, infiniband}, "", nodes)->topology.numbers;
  };
  EXPECT_EQ(numbers("a3-highgpu-8g", 2), ethernet.numbers);
  for (const char* device : {"h100", "NVIDIA-H100-80GB-HBM3"}) {
    EXPECT_TRUE(numbers(device, 1).contains("network_gb_s"));
    EXPECT_EQ(numbers(device, 2), (std::map<std::string, double>{{"host_gb_s", 55}}));
  }
}

}  // namespace
}  // namespace muster::cli
