// The energy that a machine's processors have used, by the counters of Intel's and AMD's RAPL
// (https://docs.kernel.org/power/powercap/powercap.html): DIR/intel-rapl:N has `name` (package-0),
// `energy_uj`, and `max_energy_range_uj`, at which the counter begins at 0 again. Some machines
// have a package twice, by registers (intel-rapl:0) and by mapped memory (intel-rapl-mmio:0). Most
// systems let root alone read the counters, and virtual machines have none.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "common/time/time.h"

namespace muster::trainer {

// Measures the mean power between start() and watts().
class EnergyCounter {
 public:
  explicit EnergyCounter(std::string root = "/sys/class/powercap") : root_(std::move(root)) {}

  void start(Instant now);
  // Returns the mean power of all packages since start(), in W. nullopt: there are no counters, or
  // they cannot be read. Requires that each counter began again at most once since start().
  std::optional<double> watts(Instant now) const;

 private:
  // The counter of a package.
  struct Counter {
    std::string zone;  // its folder
    double microjoules = 0;
  };
  // Returns one counter of each package, by the package's name.
  std::map<std::string, Counter> read() const;

  const std::string root_;
  std::map<std::string, Counter> begin_;
  Instant began_{};
};

}  // namespace muster::trainer
