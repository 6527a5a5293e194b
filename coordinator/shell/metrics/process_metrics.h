// The metrics process_… of Prometheus' client libraries, read from /proc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

namespace muster::coordinator {

// Returns the number of descriptors of this process; nullopt if the system does not report it.
std::optional<int64_t> open_descriptors(const std::string& proc = "/proc");

// Not thread-safe.
class ProcessMetrics {
 public:
  // `proc`: the root of the proc file system.
  explicit ProcessMetrics(prometheus::Registry& registry, std::string proc = "/proc");

  // Reads the current values. Leaves those unchanged that the system does not report.
  void update();

 private:
  void read_stat();

  const std::string proc_;
  prometheus::Counter& cpu_seconds_;
  prometheus::Gauge& resident_bytes_;
  prometheus::Gauge& virtual_bytes_;
  prometheus::Gauge& open_fds_;
  prometheus::Gauge& max_fds_;
  prometheus::Gauge& start_time_;
};

}  // namespace muster::coordinator
