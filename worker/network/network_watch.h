// Holds the newest report about the node's network devices.
#pragma once

#include <mutex>
#include <string>

#include "worker/network/network_report.h"

namespace muster::worker {

// Thread-safe.
class NetworkWatch {
 public:
  explicit NetworkWatch(std::string sys_root = kSysRoot) : sys_root_(std::move(sys_root)) {}

  // Reads all devices. Blocks while another thread measures, and while a driver queries its device
  // for counters.
  void measure();

  // Returns the newest report. Never blocks for long.
  NetworkReport report() const;

 private:
  const std::string sys_root_;
  std::mutex measuring_;      // held during a measurement, and locked before `mutex_`
  mutable std::mutex mutex_;  // protects `report_`
  NetworkReport report_;
};

}  // namespace muster::worker
