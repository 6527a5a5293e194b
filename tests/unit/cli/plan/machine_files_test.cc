#include "cli/plan/machine_files.h"

#include <gmock/gmock.h>

#include <filesystem>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "jobspec/files/calibration.h"
#include "jobspec/files/topology.h"
#include "tests/unit/temp_folder.h"

namespace muster::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The output of `muster-trainer bench-device` for two ranks of four threads.
nlohmann::json measurement() {
  return {{"hardware", "cpu"},
          {"name", "CPU"},
          {"ranks", 2},
          {"threads", 4},
          {"memory_mib", 64'000},
          {"node_watts", 80.0},
          {"device",
           {{"bf16_tflops", 0.4},
            {"fp32_tflops", 0.8},
            {"memory_gb_s", 20.0},
            {"host_gb_s", 12.0},
            {"node_gb_s", 6.0},
            {"node_latency_us", 0.0}}},
          {"constants", {{"gemm_fraction", 0.9}, {"kernel_share_norm", 2.5}}},
          {"steps",
           {{{"name", "a"}, {"seconds", 1.0}, {"forecast_seconds", 1.05}, {"fitted", true}},
            {{"name", "b"},
             {"seconds", 2.0},
             {"forecast_seconds", 1.8},
             {"fitted", false},
             {"ranks", 2}}}}};
}

class MachineFilesTest : public testing::Test {
 protected:
  // Writes the files for a measurement and returns the path of the topology.
  absl::Status write(const nlohmann::json& measured, const MachineNames& names) {
    const auto files = machine_files(measured, names);
    return files.ok() ? write_machine_files(*files, paths_) : files.status();
  }

  TempFolder folder_;
  const MachinePaths paths_ = machine_paths(folder_.path(), "own");
};

// The planner reads what was written: a device of a CPU is a core, and a rank has several.
TEST_F(MachineFilesTest, OfACpuDescribeItsCores) {
  ASSERT_TRUE(
      write(measurement(), {.devices = 8, .device = "Some: \"CPU\" #1", .bfloat16_speed = 0.5})
          .ok());
  const auto machines = jobspec::planned_machines("own-2", -1, {folder_.file("topologies")});
  ASSERT_TRUE(machines.ok()) << machines.status();
  const jobspec::Topology& topology = machines->topology;
  EXPECT_TRUE(machines->has_times());
  EXPECT_TRUE(topology.is_cpu && topology.ranks_share_node);
  EXPECT_EQ(topology.device, "Some: \"CPU\" #1");
  EXPECT_EQ(topology.devices_per_node, 8);
  EXPECT_EQ(topology.memory_mib, 32'000);
  EXPECT_DOUBLE_EQ(*topology.number("fp32_tflops"), 0.8) << "a rank of two has four cores";
  EXPECT_DOUBLE_EQ(*topology.number("node_gb_s"), 6);
  EXPECT_DOUBLE_EQ(*topology.number("measured_power_w"), 40);
  EXPECT_DOUBLE_EQ(*topology.number("bfloat16_speed"), 0.5);
  const auto calibration =
      jobspec::find_calibration("muster", "own", "", {folder_.file("calibration")});
  ASSERT_TRUE(calibration.ok()) << calibration.status();
  EXPECT_EQ(calibration->device, topology.device);
  EXPECT_EQ(calibration->steps, 2);
  EXPECT_EQ(calibration->fitted, 1);
  EXPECT_EQ(calibration->devices, 2);
  EXPECT_DOUBLE_EQ(calibration->error_percent, 10);
  EXPECT_DOUBLE_EQ(calibration->constants.at("kernel_share_norm"), 2.5);
}

TEST_F(MachineFilesTest, OfGpusDescribeWholeDevices) {
  nlohmann::json measured = measurement();
  measured["hardware"] = "gpu";
  measured["name"] = "NVIDIA H200";
  measured["device"]["multiprocessors"] = 132;
  measured.erase("node_watts");
  ASSERT_TRUE(write(measured, {.devices = 4}).ok());
  const auto topology = jobspec::read_topology(paths_.topology);
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_EQ(topology->device, "NVIDIA H200");
  EXPECT_EQ(topology->devices_per_node, 4) << "two of four GPUs measured";
  EXPECT_TRUE(topology->is_measured);
  EXPECT_EQ(topology->memory_mib, 64'000);
  EXPECT_FALSE(topology->is_cpu || topology->ranks_share_node);
  EXPECT_DOUBLE_EQ(*topology->number("fp32_tflops"), 0.8);
  EXPECT_DOUBLE_EQ(*topology->number("multiprocessors"), 132);
}

// Two ranks of a CPU with five cores have two threads each, as in a job.
TEST_F(MachineFilesTest, RanksThatDoNotDivideTheCoresHaveWholeOnes) {
  nlohmann::json measured = measurement();
  measured["threads"] = 2;
  ASSERT_TRUE(write(measured, {.devices = 5, .device = "CPU"}).ok());
  const auto rates = [&](const char* name) {
    const auto machines = jobspec::planned_machines(name, -1, {folder_.file("topologies")});
    EXPECT_TRUE(machines.ok()) << machines.status();
    return machines.ok() ? machines->topology : jobspec::Topology();
  };
  EXPECT_EQ(rates("own").devices_per_node, 5);
  EXPECT_DOUBLE_EQ(*rates("own-2").number("fp32_tflops"), 0.8) << "as measured";
  EXPECT_DOUBLE_EQ(*rates("own-5").number("fp32_tflops"), 0.4);
  EXPECT_DOUBLE_EQ(*rates("own-1").number("fp32_tflops"), 2);
  EXPECT_DOUBLE_EQ(*rates("own-1").number("measured_power_w"), 80);
  EXPECT_EQ(rates("own-2").memory_mib, 32'000);
  EXPECT_THAT(read_file(paths_.topology), HasSubstr("with 2 ranks at once of 2 threads.\n"));
  measured["threads"] = 1;
  ASSERT_TRUE(write(measured, {.devices = 2, .device = "CPU"}).ok());
  EXPECT_THAT(read_file(paths_.topology), HasSubstr("with 2 ranks at once of 1 thread.\n"));
}

// Values that `muster plan` refuses are noticed before the user plans with them.
TEST_F(MachineFilesTest, FilesThatNoPlanCouldReadAreNotLeft) {
  nlohmann::json measured = measurement();
  measured["device"]["memory_gb_s"] = 1e9;
  const absl::Status status = write(measured, {.devices = 8, .device = "CPU"});
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no plan could read it: " + paths_.topology + ":"));
  EXPECT_FALSE(std::filesystem::exists(paths_.topology));
  EXPECT_FALSE(std::filesystem::exists(paths_.calibration));
  ASSERT_TRUE(write(measurement(), {.devices = 8, .device = "CPU"}).ok());
  const std::string topology = read_file(paths_.topology),
                    calibration = read_file(paths_.calibration);
  measured = measurement();
  measured["constants"]["gemm_fraction"] = 2;
  EXPECT_THAT(std::string(write(measured, {.devices = 8, .device = "CPU"}).message()),
              HasSubstr("gemm_fraction=2"));
  EXPECT_EQ(read_file(paths_.topology), topology);
  EXPECT_EQ(read_file(paths_.calibration), calibration);
}

TEST_F(MachineFilesTest, OnlyFilesOfAMeasurementAreReplaced) {
  EXPECT_TRUE(check_replaceable(paths_).ok());
  ASSERT_TRUE(write(measurement(), {.devices = 8, .device = "CPU"}).ok());
  EXPECT_TRUE(check_replaceable(paths_).ok());
  const std::string topology = read_file(paths_.topology);
  write_file(paths_.topology, "device: CPU\nmemory_mib: 1\ndevices_per_node: 1\n");
  EXPECT_THAT(std::string(check_replaceable(paths_).message()),
              HasSubstr(paths_.topology + " is not a file of muster bench device"));
  write_file(paths_.topology, topology);
  write_file(paths_.calibration, "device: CPU\nsteps: 1\n");
  const std::string message(check_replaceable(paths_).message());
  EXPECT_THAT(message, HasSubstr(paths_.calibration + " is not a file of muster bench device"));
  std::filesystem::remove(paths_.topology);
  EXPECT_EQ(check_replaceable(paths_).message(), message) << "also without a topology";
}

// Files of earlier builds have no key `measured`.
TEST_F(MachineFilesTest, FilesOfEarlierBuildsAreReplaced) {
  ASSERT_TRUE(write(measurement(), {.devices = 8, .device = "CPU"}).ok());
  write_file(paths_.topology,
             "# Measured by `muster bench device` with 1 ranks at once.\ndevice: \"NVIDIA H200\"\n"
             "hardware: gpu\nmemory_mib: 64000\ndevices_per_node: 1\n");
  EXPECT_TRUE(check_replaceable(paths_).ok());
  // Nothing could be kept of a file with a mistake.
  write_file(paths_.topology, read_file(paths_.topology) + "powr_w: 7\n");
  EXPECT_THAT(std::string(check_replaceable(paths_).message()),
              AllOf(HasSubstr("did you mean power_w?"), HasSubstr("correct or remove the file")));
}

// docs/planning.md recommends such keys to users.
TEST_F(MachineFilesTest, AnotherMeasurementKeepsAddedKeys) {
  const MachineNames names = {.devices = 8, .device = "CPU"};
  auto files = machine_files(measurement(), names);
  ASSERT_TRUE(files.ok()) << files.status();
  const std::string measured = files->topology;
  EXPECT_EQ(keep_added_keys(paths_, *files), "") << "no earlier file";
  ASSERT_TRUE(write_machine_files(*files, paths_).ok());
  EXPECT_EQ(keep_added_keys(paths_, *files), "") << "no other key";
  EXPECT_EQ(files->topology, measured);
  write_file(paths_.topology,
             "# Measured by `muster bench device`.\ndevice: CPU\nhardware: cpu\nmemory_mib: 1\n"
             "devices_per_node: 8\nmemory_gb_s: 99\nnetwork_gb_s: 12.5  # by iperf\n"
             "network_latency_us: 3e1\npower_w: 700\nnetwork_link: 'Ether: #1'\n");
  EXPECT_EQ(keep_added_keys(paths_, *files),
            "kept network_gb_s, network_latency_us, power_w, network_link of the earlier topology; "
            "the measurement does not have them");
  ASSERT_TRUE(write_machine_files(*files, paths_).ok());
  const auto topology = jobspec::read_topology(paths_.topology);
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_DOUBLE_EQ(*topology->number("memory_gb_s"), 5) << "as measured now";
  EXPECT_DOUBLE_EQ(*topology->number("network_gb_s"), 12.5);
  EXPECT_DOUBLE_EQ(*topology->number("network_latency_us"), 30);
  EXPECT_DOUBLE_EQ(*topology->number("power_w"), 700);
  EXPECT_EQ(topology->network_link, "Ether: #1");
  // Values of eight cores do not hold for four.
  auto others = machine_files(measurement(), {.devices = 4, .device = "CPU"});
  ASSERT_TRUE(others.ok()) << others.status();
  const std::string without = others->topology;
  EXPECT_EQ(keep_added_keys(paths_, *others),
            "not kept: network_gb_s, network_latency_us, power_w, network_link of the earlier "
            "topology, which is of another machine: 8 devices of CPU");
  EXPECT_EQ(others->topology, without);
}

TEST_F(MachineFilesTest, AnIncompleteMeasurementIsRefused) {
  nlohmann::json measured = measurement();
  measured["device"].erase("memory_gb_s");
  EXPECT_THAT(std::string(write(measured, {}).message()),
              HasSubstr("has not measured memory_gb_s"));
  EXPECT_FALSE(write(nlohmann::json::array(), {}).ok());
  EXPECT_FALSE(write({{"steps", nlohmann::json::array()}}, {}).ok());
  measured = measurement();
  measured["steps"][0]["seconds"] = 0;
  EXPECT_FALSE(write(measured, {}).ok());
  EXPECT_FALSE(std::filesystem::exists(paths_.topology));
}

// A topology without its calibration would forecast with the defaults.
TEST_F(MachineFilesTest, AFailureLeavesBothFilesAsTheyWere) {
  std::filesystem::create_directories(paths_.topology);  // a folder cannot be replaced by a file
  EXPECT_FALSE(write(measurement(), {.device = "x"}).ok());
  EXPECT_FALSE(std::filesystem::exists(paths_.calibration));
  write_file(paths_.calibration, "device: before\n");
  EXPECT_FALSE(write(measurement(), {.device = "x"}).ok());
  EXPECT_EQ(read_file(paths_.calibration), "device: before\n");
}

TEST(CpuModel, IsThatOfTheFirstProcessor) {
  EXPECT_EQ(cpu_model("processor\t: 0\nmodel name\t: Intel(R) Xeon(R) \nmodel name\t: other\n"),
            "Intel(R) Xeon(R)");
  EXPECT_EQ(cpu_model("processor\t: 0\nBogoMIPS\t: 50\n"), "CPU");
  EXPECT_LE(cpu_model(absl::StrCat("model name\t: ", std::string(500, 'x'))).size(), 128);
}

}  // namespace
}  // namespace muster::cli
