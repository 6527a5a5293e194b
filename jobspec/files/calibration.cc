#include "jobspec/files/calibration.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "common/text/nearest.h"
#include "jobspec/files/yaml_file.h"

namespace muster::jobspec {
namespace {

namespace fs = std::filesystem;

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos;
}

constexpr double kErrorPercentMax = 1e6;
constexpr int64_t kStepsMax = 1'000'000;
constexpr int64_t kDevicesMax = 100'000'000;

absl::Status refused(const std::string& path, const YamlEntry& entry, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(
      path, ":", entry.line, ": ", entry.key, entry.is_scalar ? "=" : "", entry.text, ": ", what));
}

// absl::SimpleAtod() also parses "nan" and "inf"; neither is in a range.
absl::Status read_number(const std::string& path, const YamlEntry& entry, double min, double max,
                         double& out) {
  if (entry.is_scalar && absl::SimpleAtod(entry.text, &out) && out >= min && out <= max)
    return absl::OkStatus();
  return refused(path, entry, absl::StrCat("expected a number from ", min, " to ", max));
}

absl::Status read_count(const std::string& path, const YamlEntry& entry, int64_t max,
                        int64_t& out) {
  if (entry.is_scalar && absl::SimpleAtoi(entry.text, &out) && out >= 1 && out <= max)
    return absl::OkStatus();
  return refused(path, entry, absl::StrCat("expected a whole number from 1 to ", max));
}

absl::Status read_constant(const std::string& path, const YamlEntry& entry,
                           Calibration& calibration) {
  if (entry.key.starts_with(kKernelShares.name))
    return read_number(path, entry, kKernelShares.min, kKernelShares.max,
                       calibration.constants[entry.key]);
  const auto* const constant =
      std::ranges::find(kCalibrationConstants, entry.key, &CalibrationConstant::name);
  if (constant != kCalibrationConstants.end())
    return read_number(path, entry, constant->min, constant->max, calibration.constants[entry.key]);
  std::vector<std::string> names = {"device", "error_percent", "steps", "fitted", "devices"};
  for (const CalibrationConstant& known : kCalibrationConstants) names.emplace_back(known.name);
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string_view near = nearest_name(entry.key, views);
  return refused(path, entry,
                 near.empty()
                     ? absl::StrCat("unknown key; the keys are ", absl::StrJoin(names, ", "))
                     : absl::StrCat("unknown key; did you mean ", av(near), "?"));
}

absl::Status read_entry(const std::string& path, const YamlEntry& entry, Calibration& calibration) {
  if (entry.key == "fitted_rows") return absl::OkStatus();
  if (entry.key == "device") {
    calibration.device = entry.text;
    return entry.is_scalar ? absl::OkStatus() : refused(path, entry, "expected a name");
  }
  if (entry.key == "error_percent")
    return read_number(path, entry, 0, kErrorPercentMax, calibration.error_percent);
  if (entry.key == "steps") return read_count(path, entry, kStepsMax, calibration.steps);
  if (entry.key == "fitted") return read_count(path, entry, kStepsMax, calibration.fitted);
  if (entry.key == "devices") return read_count(path, entry, kDevicesMax, calibration.devices);
  return read_constant(path, entry, calibration);
}

}  // namespace

absl::StatusOr<Calibration> read_calibration(const std::string& path) {
  const auto entries = read_yaml_file(path);
  if (!entries.ok()) return entries.status();
  Calibration calibration;
  const std::string name = fs::path(path).stem().string();
  const size_t dash = name.find('-');
  calibration.program = name.substr(0, dash);
  if (dash != std::string::npos) calibration.topology = name.substr(dash + 1);
  for (const YamlEntry& entry : *entries) {
    if (auto status = read_entry(path, entry, calibration); !status.ok()) return status;
  }
  return calibration;
}

absl::StatusOr<Calibration> find_calibration(std::string_view program, std::string_view topology,
                                             std::string_view instead,
                                             const std::vector<std::string>& folders) {
  for (const std::string_view machine : {topology, instead}) {
    if (!is_plain_name(program) || !is_plain_name(machine)) continue;
    for (const std::string& folder : folders) {
      const std::string path = absl::StrCat(folder, "/", av(program), "-", av(machine), ".yml");
      std::error_code error;
      if (fs::is_regular_file(path, error)) return read_calibration(path);
    }
  }
  return absl::NotFoundError(absl::StrCat("there is no calibration ", av(program), "-",
                                          av(topology), ".yml in ",
                                          absl::StrJoin(folders, " and ")));
}

}  // namespace muster::jobspec
