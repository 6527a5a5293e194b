// The coordinator and the worker that `muster run` starts for itself on free loopback ports.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/child_process.h"

namespace muster::cli {

// One thread, which must outlive it: the kernel kills both daemons when that thread is gone, and they end their ranks.
class EmbeddedFleet {
 public:
  // Starts the coordinator with its state in `folder`. Returns at once.
  static absl::StatusOr<std::unique_ptr<EmbeddedFleet>> start(const std::string& folder);
  // Kills whatever is left.
  ~EmbeddedFleet();
  EmbeddedFleet(const EmbeddedFleet&) = delete;
  EmbeddedFleet& operator=(const EmbeddedFleet&) = delete;

  // Becomes readable when the coordinator may have become ready.
  int ready_fd() const { return inotify_fd_; }
  // Looks whether it has. True from then on, and address() is known.
  absl::StatusOr<bool> check_ready();
  const std::string& address() const { return address_; }

  // Once the coordinator is ready. Returns at once.
  absl::Status start_worker(int32_t slots);

  const ChildProcess& coordinator() const { return *coordinator_; }
  const ChildProcess* worker() const { return worker_.get(); }
  // What to say when one of them has ended although nobody asked it to; ok while both run.
  absl::Status health();

  // SIGTERM to both; what has not ended after `grace` is killed. Ranks end with their worker.
  void stop(std::chrono::milliseconds grace);
  void kill();

 private:
  EmbeddedFleet(std::string folder, int inotify_fd)
      : folder_(std::move(folder)), inotify_fd_(inotify_fd) {}

  absl::Status ended(const char* name, const ChildExit& end) const;

  const std::string folder_;
  const int inotify_fd_;
  std::string address_;
  std::unique_ptr<ChildProcess> coordinator_, worker_;
};

}  // namespace muster::cli
