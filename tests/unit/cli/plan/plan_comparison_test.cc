#include "cli/plan/plan_comparison.h"

#include <limits>

#include <gtest/gtest.h>

#include "cli/plan/forecast.h"
#include "tests/paths.h"

namespace muster::cli {
namespace {

jobspec::Topology shipped(const std::string& name) {
  auto topology = jobspec::read_topology(source_dir() + "/configs/topologies/" + name + ".yml");
  EXPECT_TRUE(topology.ok()) << topology.status();
  return topology.ok() ? *std::move(topology) : jobspec::Topology();
}

constexpr char kDevice[] = "NVIDIA H100 80GB HBM3";

TEST(TopologyOfDevice, HasNoNetworkIfMachineTypesDiffer) {
  const jobspec::Topology h100 = shipped("h100"), a3 = shipped("a3-high");
  ASSERT_TRUE(h100.has_times(2, 8));
  ASSERT_TRUE(a3.has_times(2, 8));
  for (const auto& both : {std::vector{a3, h100}, std::vector{h100, a3}}) {
    const auto one_node = topology_of_device(kDevice, both, 1);
    ASSERT_TRUE(one_node.has_value());
    EXPECT_EQ(one_node->name, both[0].name);
    EXPECT_EQ(one_node->numbers, both[0].numbers);
    const auto two_nodes = topology_of_device(kDevice, both, 2);
    ASSERT_TRUE(two_nodes.has_value());
    EXPECT_EQ(two_nodes->missing_times(2, 8),
              (std::vector<std::string>{"network_gb_s", "network_latency_us"}));
    EXPECT_EQ(two_nodes->memory_mib, both[0].memory_mib);
  }
}

TEST(TopologyOfDevice, HasTheNetworkThatAllShare) {
  const jobspec::Topology h100 = shipped("h100");
  EXPECT_TRUE(topology_of_device(kDevice, {h100}, 2)->has_times(2, 8));
  EXPECT_TRUE(topology_of_device(kDevice, {h100, h100}, 2)->has_times(2, 8));
  jobspec::Topology without = h100;
  without.numbers.erase("network_gb_s");
  EXPECT_FALSE(topology_of_device(kDevice, {h100, without}, 2)->has_times(2, 8));
  EXPECT_TRUE(topology_of_device(kDevice, {h100, shipped("b200")}, 2)->has_times(2, 8));
  EXPECT_FALSE(topology_of_device("another", {h100}, 1).has_value());
}

// Returns what `muster bench device` writes: no network.
jobspec::Topology measured(const std::string& like, const std::string& name) {
  jobspec::Topology topology = shipped(like);
  topology.name = name;
  topology.is_measured = true;
  topology.numbers["bf16_tflops"] = 700;
  for (const char* key : {"network_gb_s", "network_latency_us"}) topology.numbers.erase(key);
  return topology;
}

// Other machine types with the device come before it in the order of names.
TEST(TopologyOfDevice, IsTheMeasuredOne) {
  const jobspec::Topology ultra = shipped("a3-ultra"), h200 = shipped("h200"),
                          server = measured("h200", "my-server");
  const auto found = topology_of_device("NVIDIA H200", {ultra, h200, server}, 1);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->name, "my-server");
  EXPECT_EQ(found->number("bf16_tflops"), 700);
  EXPECT_TRUE(found->has_times(1, 8));
  EXPECT_FALSE(topology_of_device("NVIDIA H200", {ultra, h200, server}, 2)->has_times(2, 8))
      << "the networks of a3-ultra and h200 differ";
  jobspec::Topology completed = server;
  completed.numbers["network_gb_s"] = 12;
  completed.numbers["network_latency_us"] = 3;
  EXPECT_EQ(topology_of_device("NVIDIA H200", {ultra, h200, completed}, 2)->number("network_gb_s"),
            12);
}

TEST(TopologyOfDevice, AMeasuredOneHasTheNetworkOfTheOthers) {
  const jobspec::Topology b200 = shipped("b200");
  for (const char* name : {"a-server", "my-server"}) {
    const auto found = topology_of_device("NVIDIA B200", {measured("b200", name), b200}, 2);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->name, name);
    EXPECT_TRUE(found->has_times(2, 8));
    EXPECT_EQ(found->number("network_gb_s"), b200.number("network_gb_s"));
    EXPECT_EQ(found->network_link, b200.network_link);
  }
}

PredictedStep step_of(const nlohmann::json& seconds,
                      const nlohmann::json& parts = nlohmann::json::array()) {
  return predicted_step({{"time", {{"seconds", seconds}, {"parts", parts}}}});
}

TEST(PredictedStep, AddsCommunicationAndTheBubble) {
  const PredictedStep step = step_of(2.0, {{{"name", "GEMM"}, {"seconds", 1.0}},
                                           {{"name", "communication: fsdp"}, {"seconds", 0.5}},
                                           {{"name", "pipeline bubble"}, {"seconds", 0.25}}});
  EXPECT_EQ(step.seconds, 2.0);
  EXPECT_EQ(step.communication_seconds, 0.75);
}

TEST(PredictedStep, IsUnknownForValuesThatAreNoTime) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const nlohmann::json& bad :
       {nlohmann::json(), nlohmann::json("1"), nlohmann::json(0), nlohmann::json(-1.0),
        nlohmann::json(kNan), nlohmann::json(kInfinity), nlohmann::json(86'401),
        nlohmann::json::array({1}), nlohmann::json(true)}) {
    EXPECT_EQ(step_of(bad).seconds, 0) << bad;
    // The step's own time remains.
    const PredictedStep step =
        step_of(1.0, nlohmann::json::array({{{"name", "communication: data"}, {"seconds", bad}}}));
    EXPECT_EQ(step.seconds, 1.0) << bad;
    EXPECT_GE(step.communication_seconds, 0) << bad;
    EXPECT_LE(step.communication_seconds, 1.0) << bad;
  }
  EXPECT_EQ(step_of(86'400).seconds, 86'400);
  for (const nlohmann::json& parts :
       {nlohmann::json(), nlohmann::json(1), nlohmann::json::array({1}),
        nlohmann::json::array({{{"name", 3}}})})
    EXPECT_EQ(step_of(1.0, parts).communication_seconds, 0) << parts;
  for (const nlohmann::json& forecast :
       {nlohmann::json(), nlohmann::json::object(), nlohmann::json{{"time", nullptr}},
        nlohmann::json{{"time", 1}}})
    EXPECT_EQ(predicted_step(forecast).seconds, 0) << forecast;
}

TEST(SetPrediction, WritesOnlyKeysThatAreSet) {
  v1::JobSpec spec;
  spec.set_train_config_json("{}");
  set_prediction({}, 7, spec);
  EXPECT_EQ(spec.train_config_json(), "{}");
  EXPECT_EQ(spec.planned_memory_bytes(), 7);
  set_prediction({.seconds = 2}, 7, spec);
  EXPECT_EQ(nlohmann::json::parse(spec.train_config_json()),
            (nlohmann::json{{"planned_step_seconds", 2.0}}));
  set_prediction({.seconds = 2, .communication_seconds = 1}, 7, spec);
  EXPECT_EQ(nlohmann::json::parse(spec.train_config_json())["planned_communication_seconds"], 1.0);
  EXPECT_EQ(spec.planned_step_us(), 2'000'000);
  set_prediction({.seconds = 2, .data_seconds = 0.5, .checkpoint_seconds = 0.25}, 7, spec);
  EXPECT_EQ(nlohmann::json::parse(spec.train_config_json())["planned_data_seconds"], 0.5);
  EXPECT_EQ(nlohmann::json::parse(spec.train_config_json())["planned_checkpoint_seconds"], 0.25);
  EXPECT_EQ(spec.planned_data_us(), 500'000);
  EXPECT_EQ(spec.planned_checkpoint_us(), 250'000);
}

TEST(AddStorageWaits, AddsDataToTheStepAndStallsBesideIt) {
  jobspec::Topology slow;
  slow.numbers = {{"host_gb_s", 1}, {"storage_gb_s", 1e-6}};
  trainer::TrainConfig config;  // one rank
  config.dataset_type = trainer::DatasetType::kShards;
  config.per_device_batch_size = 1;
  config.max_target_length = 1000;
  config.checkpoint_period = 10;
  PredictedStep step{.seconds = 1};
  add_storage_waits(config, slow, {{"checkpoint_bytes", 2e9}}, step);
  EXPECT_NEAR(step.data_seconds, 4 - 1, 1e-9);  // 4 kB at 1 kB/s
  EXPECT_NEAR(step.seconds, 4, 1e-9);
  // The copy, and a write of 2e6 s that is not over when the next save begins.
  EXPECT_NEAR(step.checkpoint_seconds, 86'400, 1e-9);  // the longest time of a plan
  PredictedStep unknown;
  add_storage_waits(config, slow, {{"checkpoint_bytes", 2e9}}, unknown);
  EXPECT_EQ(unknown.seconds, 0);
  EXPECT_EQ(unknown.checkpoint_seconds, 0);
}

TEST(Predict, OmitsDevicesThatTheJobDoesNotUse) {
  v1::JobSpec spec;
  spec.set_train_config_json(R"({"hardware": "cpu"})");
  predict(shipped("h100"), {}, spec);
  EXPECT_EQ(spec.planned_memory_bytes(), 0);
  EXPECT_EQ(spec.train_config_json(), R"({"hardware": "cpu"})");
}

TEST(Forecast, ChoosesTheDevicesOfAutomaticHardware) {
  jobspec::Topology cpu;
  cpu.is_cpu = true;
  const auto hardware = [](const std::string& json, const jobspec::Topology& topology) {
    return nlohmann::json::parse(with_devices(json, topology))["hardware"].get<std::string>();
  };
  EXPECT_EQ(hardware(R"({"hardware": "auto", "steps": 1})", jobspec::Topology()), "gpu");
  EXPECT_EQ(hardware(R"({"hardware": "auto"})", cpu), "cpu");
  EXPECT_EQ(hardware(R"({"hardware": "gpu"})", cpu), "gpu");
  EXPECT_EQ(with_devices("{}", cpu), "{}");
  EXPECT_EQ(with_devices("[", cpu), "[");
}

}  // namespace
}  // namespace muster::cli
