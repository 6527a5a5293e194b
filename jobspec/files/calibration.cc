#include "jobspec/files/calibration.h"

#include <filesystem>
#include <system_error>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "jobspec/files/yaml_file.h"

namespace muster::jobspec {
namespace {

namespace fs = std::filesystem;

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos;
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
    if (entry.key == "fitted_rows") continue;
    if (entry.key == "device" && entry.is_scalar) {
      calibration.device = entry.text;
      continue;
    }
    double value = 0;
    if (!entry.is_scalar || !absl::SimpleAtod(entry.text, &value)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", entry.line, ": ", entry.key, "=",
                                                     entry.text, ": expected a number"));
    }
    if (entry.key == "error_percent") {
      calibration.error_percent = value;
    } else if (entry.key == "steps") {
      calibration.steps = static_cast<int64_t>(value);
    } else {
      calibration.constants[entry.key] = value;
    }
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
