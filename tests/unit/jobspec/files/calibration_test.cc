#include "jobspec/files/calibration.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/unit/temp_folder.h"
#include "trainer_core/forecast/step_cost.h"

namespace muster::jobspec {
namespace {

using testing::HasSubstr;

constexpr char kHead[] =
    "device: NVIDIA H200\nsteps: 5\nfitted: 2\ndevices: 16\nerror_percent: 7.4\n";

class CalibrationFile : public testing::Test {
 protected:
  absl::StatusOr<Calibration> read(const std::string& text) const {
    const std::string path = folder_.file("muster-h200.yml");
    write_file(path, text);
    return read_calibration(path);
  }

  TempFolder folder_;
};

TEST_F(CalibrationFile, NamesProgramTopologyAndConstants) {
  const auto read =
      this->read(absl::StrCat(kHead, "gemm_fraction: 0.5\nfitted_rows:\n  - \"a\"\n"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->program, "muster");
  EXPECT_EQ(read->topology, "h200");
  EXPECT_EQ(read->device, "NVIDIA H200");
  EXPECT_EQ(read->steps, 5);
  EXPECT_EQ(read->fitted, 2);
  EXPECT_EQ(read->devices, 16);
  EXPECT_EQ(read->error_percent, 7.4);
  ASSERT_EQ(read->constants.size(), 1U);
  EXPECT_EQ(read->constants.at("gemm_fraction"), 0.5);
}

TEST_F(CalibrationFile, MistakesHaveFileAndLine) {
  const std::pair<const char*, const char*> rows[] = {
      {"gemm_fraction: nan", "gemm_fraction=nan: expected a number from 0.01 to 1"},
      {"gemm_fraction: inf", "gemm_fraction=inf: expected a number from 0.01 to 1"},
      {"step_ms: 1e300", "step_ms=1e300: expected a number from 0 to 100000"},
      {"gemm_depth: -1", "gemm_depth=-1: expected a number from 0 to 10000"},
      {"gemm_depth: [1]", "gemm_depth: expected a number from 0 to 10000"},
      {"gemm_fractoin: 0.5", "unknown key; did you mean gemm_fraction?"},
      {"zzzzzzzzzzzz: 0.5", "unknown key; the keys are device, error_percent, steps, fitted"},
      {"", ""}};
  for (const auto& [line, problem] : rows) {
    const auto read = this->read(absl::StrCat(kHead, line, "\n"));
    EXPECT_EQ(read.ok(), *line == '\0') << line;
    const std::string message(read.status().message());
    EXPECT_THAT(message, HasSubstr(problem)) << line;
    EXPECT_EQ(message.find("/muster-h200.yml:6: ") != std::string::npos, *line != '\0') << line;
  }
  EXPECT_THAT(std::string(read("steps: nan\n").status().message()),
              HasSubstr("muster-h200.yml:1: steps=nan: expected a whole number from 1 to 1000000"));
  EXPECT_THAT(std::string(read("error_percent: inf\n").status().message()),
              HasSubstr("error_percent=inf: expected a number from 0 to"));
  EXPECT_THAT(std::string(read("devices: 1.5\n").status().message()),
              HasSubstr("devices=1.5: expected a whole number"));
}

TEST(CalibrationConstants, HaveTheRangeOfTheForecastsKernelShares) {
  EXPECT_EQ(kKernelShares.name, trainer::kKernelShareKey);
  EXPECT_EQ(kKernelShares.min, trainer::kKernelShareMin);
  EXPECT_EQ(kKernelShares.max, trainer::kKernelShareMax);
}

// The trainer refuses other constants and values, without the file and the line.
TEST(CalibrationConstants, AreThoseOfTheForecast) {
  const auto& constants = trainer::step_constants();
  ASSERT_EQ(kCalibrationConstants.size(), constants.size());
  for (size_t i = 0; i < constants.size(); ++i) {
    EXPECT_EQ(kCalibrationConstants[i].name, constants[i].name);
    EXPECT_EQ(kCalibrationConstants[i].min, constants[i].min) << constants[i].name;
    EXPECT_EQ(kCalibrationConstants[i].max, constants[i].max) << constants[i].name;
  }
}

TEST(ShippedCalibrations, CanBeReadAndNameTheirSteps) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(source_dir() + "/configs/calibration")) {
    ++files;
    const auto read = read_calibration(entry.path().string());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->constants.size(), kCalibrationConstants.size()) << entry.path();
    EXPECT_GE(read->fitted, 1) << entry.path();
    EXPECT_LE(read->fitted, read->steps) << entry.path();
    EXPECT_GE(read->devices, 1) << entry.path();
    EXPECT_FALSE(read->device.empty()) << entry.path();
  }
  EXPECT_GE(files, 20);
}

}  // namespace
}  // namespace muster::jobspec
