#include "cli/plan/step_time_view.h"

#include <gmock/gmock.h>

#include <string>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

jobspec::PlannedMachines machines_of(int32_t nodes, int32_t devices_per_node) {
  jobspec::PlannedMachines machines;
  machines.topology.name = "h200";
  machines.topology.device = "NVIDIA H200";
  machines.topology.devices_per_node = 8;
  machines.topology.numbers = {{"host_gb_s", 55}};
  machines.nodes = nodes;
  machines.devices_per_node = devices_per_node;
  return machines;
}

jobspec::Calibration calibration(int64_t fitted, int64_t devices) {
  return {.program = "muster",
          .topology = "h200",
          .device = "NVIDIA H200",
          .error_percent = 7.4,
          .steps = 5,
          .fitted = fitted,
          .devices = devices,
          .constants = {}};
}

TEST(KnownFrom, NamesWhatWasNotMeasured) {
  const std::string measured = "calibrated: 5 steps of muster measured on NVIDIA H200";
  EXPECT_EQ(known_from(machines_of(1, 1), calibration(2, 1)), measured + ", forecast within 7.4%");
  EXPECT_EQ(known_from(machines_of(1, 8), calibration(2, 1)),
            measured + ", forecast within 7.4% on at most 1 device, links are not measured");
  EXPECT_EQ(
      known_from(machines_of(2, 8), calibration(2, 8)),
      measured +
          ", forecast within 7.4% on at most 8 devices, links between nodes are not measured");
  EXPECT_EQ(known_from(machines_of(256, 8), calibration(2, 1024)),
            measured + ", forecast within 7.4% on at most 1,024 devices");
  EXPECT_EQ(known_from(machines_of(256, 8), calibration(2, 0)), measured + ", forecast within 7.4%")
      << "the file does not state its devices";
  EXPECT_EQ(known_from(machines_of(1, 1), calibration(5, 1)), measured + ", none of them held out");
}

std::string described(double failure_rate, bool is_measured = false, bool async = true) {
  const auto mesh = Mesh::resolve({.ici = {1, 1, 8, 1, 1, 1, 1}}, 1, 8);
  jobspec::ResolvedJob job(*mesh);
  job.train.per_device_batch_size = 1;
  job.train.max_target_length = 128;
  job.train.steps = 100;
  job.train.enable_checkpointing = true;
  job.train.checkpoint_period = 10;
  job.train.async_checkpointing = async;
  job.train.model.quantization.type = trainer::QuantizationType::kFp8Delayed;
  job.train.mesh.ici[static_cast<size_t>(MeshAxis::kFsdp)] = 8;
  const nlohmann::json forecast = {{"checkpoint_bytes", 8e9},
                                   {"time",
                                    {{"seconds", 2.0},
                                     {"peak_tflops", 989.0},
                                     {"tflops", 500.0},
                                     {"tflops_causal", 450.0},
                                     {"parts", nlohmann::json::array()}}}};
  jobspec::PlannedMachines machines = machines_of(1, 8);
  machines.topology.is_measured = is_measured;
  if (!is_measured) machines.topology.numbers["fp8_tflops"] = 1979;
  const StepFigures figures = step_figures(job, machines, forecast, {.failure_rate = failure_rate});
  EXPECT_EQ(to_json(figures).contains("best_save_seconds"), failure_rate > 0);
  return describe_step_time(job, machines, forecast, figures, "known");
}

// `muster bench device` measures bf16 and fp32.
TEST(StepTimeView, MeasuredPeaksAreNotThoseOfADataSheet) {
  EXPECT_THAT(described(0), HasSubstr("of the data sheet's 989 TFLOP/s\n"));
  EXPECT_THAT(described(0), Not(HasSubstr("fp8_tflops")));
  EXPECT_THAT(described(0, true), HasSubstr("of the measured peak, 989 TFLOP/s\n"));
  EXPECT_THAT(described(0, true), HasSubstr("8-bit GEMMs are forecast in bf16: the topology h200 "
                                            "has no fp8_tflops\n"));
}

TEST(StepTimeView, WithoutInterruptionsThereIsNoBestInterval) {
  EXPECT_THAT(described(2e-5), HasSubstr("interruptions: "));
  EXPECT_THAT(described(0), Not(HasSubstr("interruptions")));
}

// 8 GB of 8 devices, at 55 GB/s, each 10 steps of 2 s. The passes hide a copy in the background.
TEST(StepTimeView, StallsForCheckpointsAreBesideTheStep) {
  EXPECT_THAT(described(0, false, false),
              HasSubstr("beside it: stalls for checkpoints  0.0018   0.1%\n"));
  EXPECT_THAT(described(0), Not(HasSubstr("stalls for checkpoints")));
  EXPECT_THAT(described(2e-5), HasSubstr("is saved each 2 s (1 step), "));
}

StepFigures energy_of(const std::map<std::string, double>& numbers,
                      std::optional<double> kwh_price = {}) {
  const auto mesh = Mesh::resolve({.ici = {1, 1, 8, 1, 1, 1, 1}}, 1, 8);
  jobspec::ResolvedJob job(*mesh);
  job.train.per_device_batch_size = 1;
  job.train.max_target_length = 128;
  job.train.steps = 1800;  // 2 s each, on 8 devices: 8 GPU-hours
  jobspec::PlannedMachines machines = machines_of(1, 8);
  machines.topology.numbers.insert(numbers.begin(), numbers.end());
  return step_figures(
      job, machines,
      {{"checkpoint_bytes", 8e9},
       {"time",
        {{"seconds", 2.0}, {"peak_tflops", 989.0}, {"tflops", 500.0}, {"tflops_causal", 450.0}}}},
      {.kwh_price = kwh_price});
}

TEST(StepFigures, EnergyIsByMeasuredPowerOrTheLimit) {
  EXPECT_EQ(energy_of({}).kilowatt_hours, std::nullopt);
  const StepFigures limit = energy_of({{"power_w", 700}}, 0.2);
  EXPECT_DOUBLE_EQ(*limit.kilowatt_hours, 5.6);
  EXPECT_DOUBLE_EQ(limit.kilowatt_hours_per_device, 0.7);
  EXPECT_DOUBLE_EQ(*limit.energy_cost, 1.12);
  EXPECT_FALSE(limit.is_power_measured);
  const StepFigures measured = energy_of({{"power_w", 700}, {"measured_power_w", 500}});
  EXPECT_DOUBLE_EQ(*measured.kilowatt_hours, 4);
  EXPECT_TRUE(measured.is_power_measured);
  EXPECT_EQ(measured.energy_cost, std::nullopt);
  const nlohmann::json json = to_json(limit);
  EXPECT_EQ(json["kilowatt_hours_per_device"], limit.kilowatt_hours_per_device);
  EXPECT_EQ(json["power_is_measured"], false);
  EXPECT_EQ(json["energy_cost"], *limit.energy_cost);
}

}  // namespace
}  // namespace muster::cli
