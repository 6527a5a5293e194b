// Submits one job to a coordinator and follows it. Prints the ranks' output and changes of the
// job's state, and signals changes that the owner must handle by an eventfd. If the coordinator
// becomes unreachable, waits for its return for a short time. No call blocks the owner's thread on
// the coordinator, because that thread must handle Ctrl-C.
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

// Settings for one job.
struct WatchOptions {
  std::string address;  // address of the coordinator, for follow-up commands that notices name
  std::string request_id = "run";
  // True if this process has started the coordinator and its worker: then the job's first wait for
  // workers is not reported, because the worker is only starting.
  bool is_own = true;
  // called with the number of each new incident, on the watching thread; may use the client
  std::function<void(uint64_t)> on_incident = [](uint64_t) {};
};

// Runs each call to the coordinator on a thread of its own. Public members are called on the
// owner's thread only.
class RunWatch {
 public:
  // Submits `spec` in the background. Requires that `client` and `printer` outlive the object.
  RunWatch(Client& client, LogPrinter& printer, const v1::JobSpec& spec, WatchOptions options);
  // Ends the calls. Waits until the printer has taken the received output, unless
  // LogPrinter::give_up() was called.
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  // Returns a descriptor that is readable after every change of the state below; reset_event()
  // resets it.
  int event_fd() const { return event_fd_; }
  void reset_event() const;

  // Requests that the job saves a checkpoint and ends; prints a notice if the request fails. From
  // then on, fetches the ranks' figures periodically. Called at most once. Requires that the
  // coordinator has accepted the job.
  void cancel();

  // Ends the calls. Output that was received is still printed; then logs_are_complete() returns
  // true.
  void stop();

  // the newest state; without an id until the coordinator has accepted the job
  v1::Job job() const;
  bool has_ended() const;          // the job is in a terminal state
  bool logs_are_complete() const;  // everything that the ranks wrote has been printed
  bool output_is_closed() const;   // our output has no reader any more
  // After cancel(): returns the job with its ranks' newest figures; without an id until these are
  // known.
  v1::Job leaving_job() const;
  // Returns whether leaving_job() is final, because it shows the job's end or no more figures will
  // arrive. True if cancel() was not called.
  bool end_is_known() const;
  // Returns the reason that a rank has printed for not saving its last state; "" if no rank has
  // printed one.
  std::string reason_not_saved() const;
  // Returns the error because of which the job was not accepted, or the watch ended before the job;
  // otherwise OK.
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
