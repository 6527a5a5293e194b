#include "trainer_core/startup/measured_peak.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <nlohmann/json.hpp>

#include "common/files/file_lock.h"
#include "common/files/file_write.h"
#include "common/files/user_cache.h"
#include "common/process/host_name.h"

namespace muster::trainer {
namespace {

using nlohmann::json;

// The maximum relative difference between two rounds that confirm each other.
constexpr double kAgreement = 0.05;
// A round on a CPU takes some 30 ms.
constexpr int kRoundsMax = 12;
// The maximum time to wait for another process that measures; each of its rounds takes at most a
// second.
constexpr Duration kLockWait = std::chrono::seconds(10);

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(line.find(':') + 1)));
  }
  return "CPU";
}

json read_peaks(const std::string& path) {
  std::ifstream file(path);
  json peaks = json::parse(file, nullptr, /*allow_exceptions=*/false);
  return peaks.is_object() ? peaks : json::object();
}

// The peak that rounds have confirmed, or why there is none.
struct Finding {
  double tflops = 0;
  std::string why;
};

Finding find_peak(const std::function<PeakRound()>& measure) {
  double highest = 0;
  std::string disturbance;
  for (int i = 0; i < kRoundsMax; ++i) {
    const PeakRound round = measure();
    if (!round.disturbance.empty()) {
      disturbance = round.disturbance;
      continue;
    }
    if (!std::isfinite(round.tflops) || round.tflops <= 0)
      return {0, "no GEMM could be measured in the memory of the gradients"};
    const double before = std::exchange(highest, std::max(highest, round.tflops));
    if (std::min(before, round.tflops) > highest * (1 - kAgreement)) return {highest, ""};
  }
  return {0, disturbance.empty()
                 ? absl::StrCat("no two of ", kRoundsMax, " measurements agree within 5%")
                 : absl::StrCat("the measurements were disturbed: ", disturbance)};
}

}  // namespace

std::string peaks_path() {
  const std::string folder = user_cache_folder();
  return folder.empty() ? "" : folder + "/gemm-peaks.json";
}

std::string peak_key(const Backend& backend, DType dtype, bool tf32) {
  const bool is_cpu = backend.memory().is_host();
  const std::string description = backend.description();
  // Machines of one user may share a home folder.
  return absl::StrCat(host_name(), "|",
                      is_cpu ? cpu_model() : description.substr(0, description.find(',')), "|",
                      is_cpu ? absl::StrCat(backend.threads(), " threads|") : "",
                      dtype == DType::kBf16 ? "bfloat16"
                      : tf32 && !is_cpu     ? "tensorfloat32"
                                            : "float32");
}

double MeasuredPeak::load() const {
  if (path_.empty()) return 0;
  const json peaks = read_peaks(path_);
  const auto found = peaks.find(key_);
  if (found == peaks.end() || !found->is_number()) return 0;
  const auto tflops = found->get<double>();
  return std::isfinite(tflops) && tflops > 0 ? tflops : 0;
}

void MeasuredPeak::store(double tflops) const {
  if (path_.empty()) return;
  json peaks = read_peaks(path_);
  peaks[key_] = tflops;
  // The file is only a cache: if it cannot be written, the value is valid for this process.
  (void)write_file_atomically(path_, peaks.dump(2) + "\n");
}

double MeasuredPeak::stored() {
  if (tflops_ == 0) tflops_ = load();
  return tflops_;
}

double MeasuredPeak::get(const std::function<PeakRound()>& measure) {
  if (stored() > 0) return tflops_;
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::create_directories(folder, ignored);
  int lock = -1;
  const Instant until = monotonic_now() + kLockWait;
  while (!path_.empty() && monotonic_now() < until) {
    const auto locked = try_lock(folder.string());
    if (!locked.ok()) break;
    if (locked->has_value()) {
      lock = **locked;
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const auto unlock = absl::MakeCleanup([&] {
    if (lock >= 0) close(lock);
  });
  if (stored() > 0) return tflops_;  // another process has measured meanwhile
  const Finding finding = find_peak(measure);
  tflops_ = finding.tflops;
  why_unknown_ = finding.why;
  if (tflops_ > 0) store(tflops_);
  return tflops_;
}

}  // namespace muster::trainer
