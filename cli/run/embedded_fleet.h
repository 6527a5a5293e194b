// The coordinator and the worker that `muster run` starts on free loopback ports, and the
// coordinator of a Slurm job.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/run/run_memory.h"
#include "cli/terminal/child_process.h"
#include "common/time.h"

namespace muster::cli {

struct CoordinatorOptions {
  std::string host = "127.0.0.1";  // the address to listen on, on free ports
  std::vector<std::string> flags = {"--die-with-parent"};
  // The port of the HTTP pages was published: a restarted coordinator reuses it, and cannot start
  // if another process has taken it.
  bool reuses_http_port = false;
};

// Called on one thread only, which must outlive the object: the kernel kills both daemons when that
// thread exits, and they end their ranks.
class EmbeddedFleet {
 public:
  // Starts the coordinator with its state in `folder`. Does not wait for it.
  static absl::StatusOr<std::unique_ptr<EmbeddedFleet>> start(const std::string& folder,
                                                              CoordinatorOptions options = {});
  // Kills the remaining daemons.
  ~EmbeddedFleet();
  EmbeddedFleet(const EmbeddedFleet&) = delete;
  EmbeddedFleet& operator=(const EmbeddedFleet&) = delete;

  // Becomes readable when the coordinator may be ready.
  int ready_fd() const { return inotify_fd_; }
  // Returns true once the coordinator is ready; address() is valid from then on.
  absl::StatusOr<bool> check_ready();
  const std::string& address() const { return address_; }
  int http_port() const {
    return http_port_;
  }  // Port of the first coordinator's pages; with reuses_http_port also of later ones.
  std::string shown_host() const;  // the host as written in an address

  // Starts the worker without waiting for it. Requires a ready coordinator. Without this call no
  // worker runs on this machine.
  // `input_fd`: the standard input of a program's rank 0, which outlives this object; -1: none.
  absl::Status start_worker(int32_t slots, int input_fd = -1);

  bool has_coordinator() const { return coordinator_ != nullptr; }  // false after kill()
  const ChildProcess& coordinator() const { return *coordinator_; }
  const ChildProcess* worker() const { return worker_.get(); }
  // Returns ok while both run; otherwise an error for the one that ended without being asked to.
  absl::Status health();
  // Restarts a daemon that a signal ended. The coordinator gets its port and its stored state back,
  // which ranks do not notice; the worker loses its ranks. Appends a line per restart to `notes`.
  // Returns an error, as health() does, for a daemon that exited by itself or died kRevivalsMax
  // times.
  absl::Status mend(std::vector<std::string>& notes);

  // Asks both to leave, and kills those that run after `grace`. Ranks end with their worker.
  void stop(std::chrono::milliseconds grace);
  void kill();

 private:
  EmbeddedFleet(std::string folder, int inotify_fd, CoordinatorOptions options)
      : folder_(std::move(folder)), inotify_fd_(inotify_fd), options_(std::move(options)) {}

  absl::Status start_coordinator(const std::string& listen);
  std::string any_port() const;
  absl::Status ended(const char* name, const ChildExit& end) const;

  const std::string folder_;
  const int inotify_fd_;
  const CoordinatorOptions options_;
  std::string address_;
  int http_port_ = 0;
  int32_t slots_ = 0;
  int input_fd_ = -1;
  std::vector<Instant> revivals_;
  std::unique_ptr<RunMemory> memory_;  // ends after the daemons; null: no memory-backed storage
  std::unique_ptr<ChildProcess> coordinator_, worker_;
};

}  // namespace muster::cli
