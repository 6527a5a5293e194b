#include "cli/plan/machine_files.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "common/text/escape.h"
#include "common/text/number_text.h"
#include "jobspec/files/calibration.h"
#include "jobspec/files/topology.h"
#include "jobspec/files/yaml_file.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kModelBytesMax = 100;
// The beginnings of both files. Earlier builds wrote them, too, but no key `measured`.
constexpr absl::string_view kTopologyBegin = "# Measured by `muster bench device`";
constexpr absl::string_view kCalibrationBegin =
    "# The shares of the device that muster attains, measured by `muster bench device`";

std::string yaml_line(std::string_view key, double value) {
  return absl::StrFormat("%s: %.5g\n", std::string(key), value);
}

// Quotes a name for YAML.
std::string yaml_name(const std::string& name) { return nlohmann::json(name).dump(); }

absl::StatusOr<double> measured_number(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found != object.end() && found->is_number()) return found->get<double>();
  return absl::InternalError(absl::StrCat("muster-trainer bench-device has not measured ", key));
}

// Returns nullopt if there is no such file.
std::optional<std::string> content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

// A file that is about to be written, with its present content.
class WrittenFile {
 public:
  explicit WrittenFile(std::string path) : path_(std::move(path)), old_(content_of(path_)) {}

  // Restores the content, or removes the file if there was none or it cannot be written.
  void restore() const {
    std::error_code ignored;
    if (!old_ || !write_file_atomically(path_, *old_).ok()) fs::remove(path_, ignored);
  }

 private:
  const std::string path_;
  const std::optional<std::string> old_;
};

// Returns Internal if `muster plan` cannot read the files or lacks a value for the time of a step.
absl::Status read_back(const MachinePaths& paths) {
  const auto topology = jobspec::read_topology(paths.topology);
  const auto calibration = jobspec::read_calibration(paths.calibration);
  std::string problem;
  if (!topology.ok()) {
    problem = std::string(topology.status().message());
  } else if (!calibration.ok()) {
    problem = std::string(calibration.status().message());
  } else if (const auto missing = topology->missing_times(1, 1); !missing.empty()) {
    problem = absl::StrCat(paths.topology, ": ", missing.front(), " is missing");
  }
  if (problem.empty()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the measurement is not saved, because no plan could read it: ", problem));
}

}  // namespace

std::string cpu_model(const std::string& cpuinfo) {
  for (const absl::string_view line : absl::StrSplit(cpuinfo, '\n')) {
    const size_t colon = line.find(':');
    if (!absl::StartsWith(line, "model name") || colon == absl::string_view::npos) continue;
    const std::string model(absl::StripAsciiWhitespace(line.substr(colon + 1)));
    if (!model.empty()) return printable(model, kModelBytesMax);
  }
  return "CPU";
}

absl::StatusOr<MachineFiles> machine_files(const nlohmann::json& measured,
                                           const MachineNames& names) {
  if (!measured.is_object() || !measured.value("steps", nlohmann::json()).is_array())
    return absl::InternalError("muster-trainer bench-device has written no measurement");
  const bool is_cpu = measured.value("hardware", "") == "cpu";
  const auto ranks = measured_number(measured, "ranks"),
             threads = measured_number(measured, "threads");
  const auto memory = measured_number(measured, "memory_mib");
  for (const absl::Status& status : {ranks.status(), threads.status(), memory.status()})
    if (!status.ok()) return status;
  const double devices = names.devices;
  MachineFiles files;
  const std::string device = is_cpu ? names.device : measured.value("name", "GPU");
  files.topology = absl::StrFormat(
      "%s with %s at once%s.\ndevice: %s\nhardware: %s\nmeasured: true\n", kTopologyBegin,
      counted(static_cast<uint64_t>(*ranks), "rank"),
      is_cpu ? absl::StrCat(" of ", counted(static_cast<uint64_t>(*threads), "thread")) : "",
      yaml_name(device), is_cpu ? "cpu" : "gpu");
  // A rank of a CPU allocates its share of the node's memory.
  absl::StrAppendFormat(&files.topology, "memory_mib: %d\ndevices_per_node: %d\n",
                        static_cast<int64_t>(std::max(1.0, *memory / (is_cpu ? devices : 1))),
                        names.devices);
  if (is_cpu) {
    absl::StrAppend(&files.topology,
                    "# A device is a core. Fewer ranks than cores have larger shares of them.\n"
                    "ranks_share_node: true\n");
    if (names.bfloat16_speed)
      absl::StrAppend(&files.topology, yaml_line("bfloat16_speed", *names.bfloat16_speed));
  }
  absl::StrAppend(&files.topology, "# Peaks of GEMMs, and bandwidths of copies and collectives.\n");
  const nlohmann::json values = measured.value("device", nlohmann::json::object());
  for (const jobspec::TopologyNumber& known : jobspec::kTopologyNumbers) {
    const std::string key(known.key);
    if (known.needed_by != jobspec::NeededBy::kAll && !values.contains(key)) continue;
    const auto value = measured_number(values, key.c_str());
    if (!value.ok()) return value.status();
    // A latency of 0 is below what can be measured.
    constexpr double kLeast = 1e-3;
    absl::StrAppend(&files.topology,
                    yaml_line(key, std::max(known.share == jobspec::ShareOf::kCores && is_cpu
                                                ? *value / *threads
                                                : *value,
                                            kLeast)));
  }
  if (values.contains("node_gb_s") && is_cpu)
    absl::StrAppend(&files.topology, "node_link: shared memory\n");
  if (const auto watts = measured_number(measured, "node_watts"); watts.ok() && *watts > 0)
    absl::StrAppend(&files.topology, "# Mean power of the processors during the measurement.\n",
                    yaml_line("measured_power_w", *watts / devices));
  int64_t fitted = 0, most_devices = 1;
  for (const auto& step : measured["steps"]) {
    const auto seconds = measured_number(step, "seconds"),
               forecast = measured_number(step, "forecast_seconds");
    if (!seconds.ok() || !forecast.ok() || !(*seconds > 0))
      return absl::InternalError("muster-trainer bench-device has measured no time of a step");
    files.error_percent = std::max(files.error_percent, 100 * std::abs(*forecast / *seconds - 1));
    ++files.steps;
    fitted += step.value("fitted", false) ? 1 : 0;
    most_devices = std::max<int64_t>(most_devices, step.value("ranks", int64_t{1}));
  }
  files.calibration = absl::StrFormat(
      "%s.\n# docs/planning.md explains the constants.\n"
      "device: %s\nsteps: %d\nfitted: %d\ndevices: %d\nerror_percent: %.1f\n",
      kCalibrationBegin, yaml_name(device), files.steps, fitted, most_devices, files.error_percent);
  const nlohmann::json constants = measured.value("constants", nlohmann::json::object());
  for (const auto& [key, value] : constants.items())
    if (value.is_number()) absl::StrAppend(&files.calibration, yaml_line(key, value.get<double>()));
  return files;
}

MachinePaths machine_paths(const std::string& folder, const std::string& name) {
  return {absl::StrCat(folder, "/topologies/", name, ".yml"),
          absl::StrCat(folder, "/calibration/muster-", name, ".yml")};
}

absl::Status check_replaceable(const MachinePaths& paths) {
  const auto refuse = [](const std::string& path, absl::string_view begin) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a file of muster bench device (it does not begin with \"",
                     begin, "\"), so --force does not replace it; choose another name"));
  };
  std::error_code error;
  if (fs::exists(paths.topology, error)) {
    const bool begins = absl::StartsWith(content_of(paths.topology).value_or(""), kTopologyBegin);
    const auto topology = jobspec::read_topology(paths.topology);
    if (!begins && !(topology.ok() && topology->is_measured))
      return refuse(paths.topology, kTopologyBegin);
    if (!topology.ok())
      return absl::InvalidArgumentError(
          absl::StrCat(topology.status().message(),
                       "; correct or remove the file, because --force keeps the keys that were "
                       "added to it"));
  }
  if (fs::exists(paths.calibration, error) &&
      !absl::StartsWith(content_of(paths.calibration).value_or(""), kCalibrationBegin))
    return refuse(paths.calibration, kCalibrationBegin);
  return absl::OkStatus();
}

std::string keep_added_keys(const MachinePaths& paths, MachineFiles& files) {
  const auto entries = jobspec::read_yaml_file(paths.topology);
  if (absl::IsNotFound(entries.status())) return "";
  const auto old = jobspec::read_topology(paths.topology);
  if (!old.ok())
    return absl::StrCat("no key of the earlier topology is kept: ", old.status().message());
  std::vector<std::string> keys;
  std::string lines;
  for (const jobspec::YamlEntry& entry : *entries) {
    if (absl::StrContains(files.topology, absl::StrCat("\n", entry.key, ":"))) continue;
    const bool is_name = absl::EndsWith(entry.key, "_link") || entry.key == "calibrated_as";
    absl::StrAppend(&lines, entry.key, ": ", is_name ? yaml_name(entry.text) : entry.text, "\n");
    keys.push_back(entry.key);
  }
  if (keys.empty()) return "";
  const auto has_line = [&](const std::string& line) {
    return absl::StrContains(files.topology, absl::StrCat("\n", line, "\n"));
  };
  // The values of a CPU are those of one of its cores.
  const bool is_same =
      has_line(absl::StrCat("device: ", yaml_name(old->device))) &&
      has_line(old->is_cpu ? "hardware: cpu" : "hardware: gpu") &&
      (!old->is_cpu || has_line(absl::StrCat("devices_per_node: ", old->devices_per_node)));
  const std::string names = absl::StrCat(absl::StrJoin(keys, ", "), " of the earlier topology");
  if (!is_same)
    return absl::StrCat("not kept: ", names, ", which is of another machine: ",
                        counted(static_cast<uint64_t>(old->devices_per_node), "device"), " of ",
                        old->device);
  absl::StrAppend(&files.topology, "# Kept from the earlier topology.\n", lines);
  return absl::StrCat("kept ", names, "; the measurement does not have them");
}

absl::Status write_machine_files(const MachineFiles& files, const MachinePaths& paths) {
  for (const std::string& path : {paths.topology, paths.calibration}) {
    const fs::path folder = fs::path(path).parent_path();
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) return errno_status(error.value(), absl::StrCat("creating ", folder.string()));
  }
  const WrittenFile calibration(paths.calibration), topology(paths.topology);
  if (auto status = write_file_atomically(paths.calibration, files.calibration); !status.ok())
    return status;
  if (auto status = write_file_atomically(paths.topology, files.topology); !status.ok()) {
    calibration.restore();
    return status;
  }
  const absl::Status status = read_back(paths);
  if (status.ok()) return status;
  calibration.restore();
  topology.restore();
  return status;
}

}  // namespace muster::cli
