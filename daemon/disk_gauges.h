// Metrics of the size and free space of a daemon's disk. Called on any thread that may block on a
// file system.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include <prometheus/family.h>
#include <prometheus/gauge.h>

namespace muster::daemon {

// Sets both gauges for the file system of `path`. Leaves them unchanged without a path or if the
// system reports no value: unknown does not mean full.
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
