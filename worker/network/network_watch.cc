#include "worker/network/network_watch.h"

#include <utility>

namespace muster::worker {

void NetworkWatch::measure() {
  const std::lock_guard only(measuring_);
  std::vector<NetworkDevice> devices = read_network_devices(sys_root_);
  const std::lock_guard lock(mutex_);
  add_measurement(report_, std::move(devices), monotonic_now());
}

NetworkReport NetworkWatch::report() const {
  const std::lock_guard lock(mutex_);
  return report_;
}

}  // namespace muster::worker
