#include "cli/run/this_machine.h"

#include <fstream>
#include <sstream>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <nlohmann/json.hpp>

#include "cli/run/build_features.h"
#include "cli/run/local_gpu_check.h"
#include "cli/run/user_cache.h"
#include "cli/terminal/child_process.h"
#include "common/files/file_write.h"
#include "common/process/run_child.h"
#include "common/random/fnv.h"
#include "common/time/time.h"
#include "common/version.h"
#include "jobspec/precision_keys.h"

namespace muster::cli {
namespace {

constexpr Duration kMeasuredWithin = std::chrono::seconds(30);

std::string text_of_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Returns what decides on a processor's speed, of the first one in `cpuinfo`.
std::string kind_of_cpu(const std::string& cpuinfo) {
  static constexpr const char* kFields[] = {
      "vendor_id", "cpu family",       "model",   "stepping", "flags", "CPU implementer",
      "CPU part",  "CPU architecture", "Features"};
  std::string kind;
  for (const absl::string_view line : absl::StrSplit(cpuinfo, '\n')) {
    if (line.empty() && !kind.empty()) break;
    for (const char* field : kFields) {
      if (absl::StartsWith(line, field)) absl::StrAppend(&kind, line, "\n");
    }
  }
  return kind;
}

std::optional<double> measure() {
  const auto trainer = sibling_program("muster-trainer");
  if (!trainer.ok()) return std::nullopt;
  const auto end =
      run_child({*trainer, "cpu-speed"}, {.deadline = monotonic_now() + kMeasuredWithin});
  if (!end.ok() || end->exit_code != 0) return std::nullopt;
  const auto found = nlohmann::json::parse(end->output, nullptr, /*allow_exceptions=*/false);
  if (!found.is_object() || !found.contains("bfloat16_speed") ||
      !found["bfloat16_speed"].is_number())
    return std::nullopt;
  return found["bfloat16_speed"].get<double>();
}

std::optional<double> kept_speed(const std::string& path) {
  double speed = 0;
  if (path.empty() || !absl::SimpleAtod(text_of_file(path), &speed) || speed <= 0)
    return std::nullopt;
  return speed;
}

}  // namespace

std::string own_cpuinfo() { return text_of_file("/proc/cpuinfo"); }

std::optional<double> cpu_bfloat16_speed(const std::string& cpuinfo) {
  const uint64_t kind = fnv1a(absl::StrCat(kind_of_cpu(cpuinfo), kVersion));
  const std::string path =
      user_cache_file(absl::StrCat("cpu-bfloat16-speed-", absl::Hex(kind, absl::kZeroPad16)));
  if (const auto kept = kept_speed(path)) return kept;
  const auto measured = measure();
  // A second call that has measured at the same time may have been first: both use its result.
  if (const auto kept = kept_speed(path)) return kept;
  if (measured && !path.empty())
    (void)write_file_atomically(path, absl::StrCat(*measured, "\n"));  // else measured again
  return measured;
}

bool may_use_gpus(const jobspec::Config& config) {
  const jobspec::Setting* hardware = jobspec::find_setting(config.settings, "hardware");
  return hardware != nullptr &&
         (hardware->value == "gpu" || (hardware->value == "auto" && kHasGpuBackend));
}

void describe_this_machine(const jobspec::Config& config, bool counts_gpus,
                           jobspec::LaunchOptions& options) {
  if (options.own_workers && counts_gpus && may_use_gpus(config)) options.node_gpus = local_gpus();
  options.cpu_bfloat16_speed = options.planned_cpu.bfloat16_speed;
  if (!options.cpu_bfloat16_speed && jobspec::needs_cpu_speed(config, options))
    options.cpu_bfloat16_speed = cpu_bfloat16_speed(own_cpuinfo());
}

}  // namespace muster::cli
