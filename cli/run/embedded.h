// The coordinator and the worker that `muster run` starts for itself on free loopback ports, and the coordinator alone of a Slurm job.
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
  std::string host = "127.0.0.1";  // where it listens, on free ports
  std::vector<std::string> flags = {"--die-with-parent"};
  // Somebody has been told the port of its pages: one that is started again has it again, or cannot start where others have it by then.
  bool keeps_http_port = false;
};

// One thread, which must outlive it: the kernel kills both daemons when that thread is gone, and they end their ranks.
class EmbeddedFleet {
 public:
  // Starts the coordinator with its state in `folder`. Returns at once.
  static absl::StatusOr<std::unique_ptr<EmbeddedFleet>> start(const std::string& folder,
                                                              CoordinatorOptions options = {});
  // Kills whatever is left.
  ~EmbeddedFleet();
  EmbeddedFleet(const EmbeddedFleet&) = delete;
  EmbeddedFleet& operator=(const EmbeddedFleet&) = delete;

  // Becomes readable when the coordinator may have become ready.
  int ready_fd() const { return inotify_fd_; }
  // Looks whether it has. True from then on, and address() is known.
  absl::StatusOr<bool> check_ready();
  const std::string& address() const { return address_; }
  int http_port() const {
    return http_port_;
  }  // of the first coordinator's pages; with keeps_http_port of the next one's, too
  std::string shown_host() const;  // as it stands in an address

  // Once the coordinator is ready. Returns at once. Without it there is none on this machine.
  absl::Status start_worker(int32_t slots);

  bool has_coordinator() const { return coordinator_ != nullptr; }  // not after kill()
  const ChildProcess& coordinator() const { return *coordinator_; }
  const ChildProcess* worker() const { return worker_.get(); }
  // What to say when one of them has ended although nobody asked it to; ok while both run.
  absl::Status health();
  // Starts again what a signal has ended: the coordinator on its port with what it had stored, which ranks do not notice, the worker
  // without the ranks that it had. Adds a line to `notes` for each. An error as health()'s of one that ended by itself, or died kRevivalsMax times.
  absl::Status mend(std::vector<std::string>& notes);

  // Asks both to leave; what has not ended after `grace` is killed. Ranks end with their worker.
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
  std::vector<Instant> revivals_;
  std::unique_ptr<RunMemory> memory_;  // ends after the daemons; null where there is none
  std::unique_ptr<ChildProcess> coordinator_, worker_;
};

}  // namespace muster::cli
