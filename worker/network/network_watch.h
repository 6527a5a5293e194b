// Reads the node's network devices in regular intervals, and holds the newest report. Only its own
// thread reads sysfs: a driver whose device is dead blocks a reading for a minute or for good, and
// everything else uses the newest complete reading meanwhile.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "worker/network/network_report.h"

namespace muster::worker {

struct NetworkWatchOptions {
  NetworkSelection selection;
  Duration interval = std::chrono::seconds(5);
  // Receives the text of each event, and errors, on the watch's thread; may be null. Must own what
  // it uses.
  std::function<void(const std::string& text)> on_event;
};

// Thread-safe.
class NetworkWatch {
 public:
  explicit NetworkWatch(NetworkWatchOptions options);
  // Does not wait for a reading that hangs.
  ~NetworkWatch();
  NetworkWatch(const NetworkWatch&) = delete;
  NetworkWatch& operator=(const NetworkWatch&) = delete;

  // Returns the newest report. Never blocks for long.
  NetworkReport report() const;

  // Starts a reading soon. Does not wait for it.
  void request() const;

  // Waits at most so long for a reading that begins after this call, and returns the newest report.
  // Does not wait while a reading takes unusually long.
  NetworkReport measure(Duration at_most) const;

 private:
  struct Shared;
  class Loop;

  const std::shared_ptr<Shared> shared_;
};

}  // namespace muster::worker
