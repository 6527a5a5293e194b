// How large a daemon's disk is and how much of it is free, as metrics. Any thread that may ask a file system.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include <prometheus/family.h>
#include <prometheus/gauge.h>

namespace muster::daemon {

// Of the file system of `path`. Without a path, or when nobody knows, they stay as they are: unknown is not full.
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
