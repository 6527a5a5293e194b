#include "trainer_core/forecast/energy_counter.h"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

// More packages than any machine has.
constexpr size_t kPackagesMax = 64;

std::optional<double> number_in(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  if (!(file >> value) || value < 0) return std::nullopt;
  return value;
}

std::string word_in(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

}  // namespace

// The zones of a package's cores and memory are parts of the package, and `psys` contains it. The
// last zone of a package in the order of names counts: ":0" is after "-mmio:0".
std::map<std::string, EnergyCounter::Counter> EnergyCounter::read() const {
  std::map<std::string, Counter> packages;
  std::error_code error;
  for (fs::directory_iterator it(root_, error), end; !error && it != end; it.increment(error)) {
    const std::string zone = it->path().string(), name = word_in(zone + "/name");
    if (packages.size() >= kPackagesMax || !name.starts_with("package-")) continue;
    const auto energy = number_in(zone + "/energy_uj");
    if (!energy) continue;
    Counter& counter = packages[name];
    if (counter.zone.empty() || zone > counter.zone) counter = {zone, *energy};
  }
  return packages;
}

void EnergyCounter::start(Instant now) {
  begin_ = read();
  began_ = now;
}

std::optional<double> EnergyCounter::watts(Instant now) const {
  const double seconds = to_seconds(now - began_);
  const std::map<std::string, Counter> end = read();
  if (begin_.empty() || end.size() != begin_.size() || !(seconds > 0)) return std::nullopt;
  double joules = 0;
  for (const auto& [name, counter] : end) {
    const auto before = begin_.find(name);
    if (before == begin_.end() || before->second.zone != counter.zone) return std::nullopt;
    double used = counter.microjoules - before->second.microjoules;
    if (used < 0) used += number_in(counter.zone + "/max_energy_range_uj").value_or(0);
    if (used < 0) return std::nullopt;
    joules += used * 1e-6;
  }
  return joules / seconds;
}

}  // namespace muster::trainer
