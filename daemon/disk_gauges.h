// Metrics of the size and free space of a daemon's disk. The call may block on the file system.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include <prometheus/family.h>
#include <prometheus/gauge.h>

namespace muster::daemon {

// Sets both gauges for the file system of `path`. Leaves them unchanged if `path` is empty or the
// system reports no value, because unknown does not mean full.
inline void set_disk_gauges(const std::string& path, prometheus::Family<prometheus::Gauge>& bytes,
                            prometheus::Family<prometheus::Gauge>& free) {
  if (path.empty()) return;
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(path, error);
  if (error) return;
  bytes.Add({}).Set(static_cast<double>(space.capacity));
  free.Add({}).Set(static_cast<double>(space.available));
}

}  // namespace muster::daemon
