// Submits one job to a coordinator and follows it. The ranks' output and the job's state go to the
// terminal, and an eventfd signals when there is something to decide. It waits for a coordinator
// that is unreachable for a short time. No call blocks the owner's thread on the coordinator,
// because that thread must handle Ctrl-C.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cli/client.h"
#include "cli/jobs/job_updates.h"
#include "cli/jobs/log_printer.h"

namespace muster::cli {

struct WatchOptions {
  std::string address;  // of the coordinator, for follow-up commands
  std::string request_id = "run";
  // This process started the coordinator and its worker: a first wait for workers only means that
  // they are still starting.
  bool is_own = true;
  // Called with the number of each new incident on the watching thread; may use the client.
  std::function<void(uint64_t)> on_incident = [](uint64_t) {};
};

// Each call has a thread; all public members are for the owner's thread. `client` and `printer`
// must outlive it.
class RunWatch {
 public:
  RunWatch(Client& client, LogPrinter& printer, const v1::JobSpec& spec, WatchOptions options);
  // Ends the calls and the use of the client. Waits for the printer, unless give_up() was called on
  // it.
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  // Readable after every change of the state below; take_event() resets it.
  int event_fd() const { return event_fd_; }
  void take_event() const;

  // Requests the job's end after a checkpoint; a failure is printed as a notice. From then on
  // samples the ranks' figures. Call it once, for an accepted job.
  void cancel();

  // Ends the calls. What was received is still printed, and the logs count as complete then.
  void stop();

  v1::Job job() const;             // without an id until the coordinator has accepted it
  bool has_ended() const;          // the job is in a terminal state
  bool logs_are_complete() const;  // everything that the ranks wrote has been printed
  bool output_is_closed() const;   // our output has no reader any more
  // After cancel(): the job with its ranks' newest figures; without an id before they are known.
  v1::Job leaving_job() const;
  // Whether leaving_job() shows the end, or nothing more will be known. True without cancel().
  bool end_is_known() const;
  // Returns why a rank has not saved its last state, as it printed it; "" if none did.
  std::string reason_not_saved() const;
  // Returns why the job was not accepted, or why the watch ended before the job; ok otherwise.
  absl::Status trouble() const;

 private:
  void submit_and_watch(const v1::JobSpec& spec);
  absl::Status watch(uint64_t id);
  void follow(uint64_t id);
  void sample_ranks(uint64_t id);
  void set_end_known(bool is_known);
  void changed() const;

  Client& client_;
  LogPrinter& printer_;
  const int event_fd_;
  mutable std::mutex mutex_;
  v1::Job job_;
  v1::Job leaving_job_;
  bool end_known_ = true;
  std::string reason_not_saved_;
  bool logs_complete_ = false;
  bool output_closed_ = false;
  absl::Status trouble_;
  const WatchOptions options_;
  JobUpdates notices_;                             // used by the watching thread only
  uint64_t newest_incident_ = 0;                   // used by the watching thread only
  std::thread watching_, following_, cancelling_;  // the watching thread starts the following one
};

}  // namespace muster::cli
