// Starts a coordinator and, for `muster run`, a worker as child processes on free loopback ports. A
// Slurm job uses only the coordinator.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/run/run_memory.h"
#include "cli/terminal/child_process.h"
#include "common/process/input_mark.h"
#include "common/time/time.h"

namespace muster::cli {

// Settings of the coordinator.
struct CoordinatorOptions {
  std::string host = "127.0.0.1";  // address on which it listens, on free ports
  std::vector<std::string> flags = {"--die-with-parent"};
  // True if the port of the HTTP pages is published: a restarted coordinator then uses the same
  // port, and cannot start if another process has taken it.
  bool reuses_http_port = false;
};

// Owns the two daemons. Called on one thread only, which must outlive the object: when that thread
// exits, the kernel kills both daemons, and the ranks end with their worker.
class EmbeddedFleet {
 public:
  // Starts the coordinator with its state in `folder`. Does not wait until it is ready.
  static absl::StatusOr<std::unique_ptr<EmbeddedFleet>> start(const std::string& folder,
                                                              CoordinatorOptions options = {});
  // Kills the remaining daemons.
  ~EmbeddedFleet();
  EmbeddedFleet(const EmbeddedFleet&) = delete;
  EmbeddedFleet& operator=(const EmbeddedFleet&) = delete;

  // Returns a descriptor that becomes readable when the coordinator may be ready.
  int ready_fd() const { return inotify_fd_; }
  // Returns true once the coordinator is ready; from then on, address() is valid.
  absl::StatusOr<bool> check_ready();
  const std::string& address() const { return address_; }
  // Returns the port of the first coordinator's HTTP pages. With reuses_http_port, a restarted
  // coordinator has the same port.
  int http_port() const { return http_port_; }
  std::string shown_host() const;  // returns the host as written in an address

  // Starts a worker, without waiting until it is ready. Requires a ready coordinator. Without this
  // call no worker runs on this machine. `input_fd`: the standard input of rank 0 of a program,
  // which must outlive this object; -1: none.
  absl::Status start_worker(int32_t slots, int input_fd = -1);

  bool has_coordinator() const { return coordinator_ != nullptr; }  // false after kill()
  const ChildProcess& coordinator() const { return *coordinator_; }
  const ChildProcess* worker() const { return worker_.get(); }
  // Returns OK while all started daemons run; otherwise an error about the daemon that has ended
  // although it was not stopped.
  absl::Status health();
  // Restarts a daemon that a signal has killed. A restarted coordinator has the same port and
  // state, and its ranks continue; a restarted worker has lost its ranks. Appends a line per
  // restart to `notes`. Returns an error, as health() does, if a daemon has exited by itself, or if
  // signals have killed daemons too often (kRevivalsMax). `attempt`: the job's; a line states once
  // that rank 0 of a later one reads only the rest of a pipe.
  absl::Status mend(std::vector<std::string>& notes, uint32_t attempt = 0);

  // Requests by a signal that both daemons end, and kills a daemon that still runs after `grace`.
  // Ranks end with their worker.
  void stop(std::chrono::milliseconds grace);
  void kill();

 private:
  EmbeddedFleet(std::string folder, int inotify_fd, CoordinatorOptions options)
      : folder_(std::move(folder)), inotify_fd_(inotify_fd), options_(std::move(options)) {}

  absl::Status start_coordinator(const std::string& listen);
  void note_input(uint32_t attempt, std::vector<std::string>& notes);
  std::string any_port() const;
  absl::Status ended(const char* name, const ChildExit& end) const;

  const std::string folder_;
  const int inotify_fd_;
  const CoordinatorOptions options_;
  std::string address_;
  int http_port_ = 0;
  int32_t slots_ = 0;
  int input_fd_ = -1;
  std::optional<InputMark> input_mark_;  // taken when the first worker started
  bool input_is_noted_ = false;
  std::vector<Instant> revivals_;
  // destroyed after the daemons; null: no memory-backed storage
  std::unique_ptr<RunMemory> memory_;
  std::unique_ptr<ChildProcess> coordinator_, worker_;
};

}  // namespace muster::cli
