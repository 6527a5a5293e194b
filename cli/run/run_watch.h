// Submits one job to a coordinator and follows it: its ranks' output and its state go to the terminal, and an
// eventfd says when there is something to decide. A coordinator that is gone for a moment is waited for. Nothing here waits for the coordinator on the owner's thread, which
// must hear Ctrl-C.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cli/client.h"
#include "cli/jobs/job_news.h"
#include "cli/jobs/log_printer.h"

namespace muster::cli {

struct WatchOptions {
  std::string address;  // the coordinator's, for who wants to look closer
  std::string request_id = "run";
  // The coordinator and its worker are this process's own: a first wait for workers is for those that are on their way.
  bool is_own = true;
  // Is told the number of each new incident, on the watching thread, and may use the client.
  std::function<void(uint64_t)> on_incident = [](uint64_t) {};
};

// Each call has a thread; everything public is for the owner's thread. `client` and `printer` must outlive it.
class RunWatch {
 public:
  RunWatch(Client& client, LogPrinter& printer, const v1::JobSpec& spec, WatchOptions options);
  // Ends the calls, and the client's use. Waits for the printer, unless it was told to give up.
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  // Readable after every change of what follows; take_event() resets it.
  int event_fd() const { return event_fd_; }
  void take_event() const;

  // Asks for the job's end after a checkpoint; a failure becomes news. Once, and only for an accepted job.
  void cancel();

  // Ends the calls; what has been received is printed all the same, and the logs are complete then.
  void stop();

  v1::Job job() const;             // without an id until the coordinator has accepted it
  bool has_ended() const;          // the job is in a terminal state
  bool logs_are_complete() const;  // everything that the ranks wrote has been printed
  bool output_is_closed() const;   // nobody reads our output any more
  // Why the job was not accepted, or the watch ended before the job did; ok otherwise.
  absl::Status trouble() const;

 private:
  void submit_and_watch(const v1::JobSpec& spec);
  absl::Status watch(uint64_t id);
  void follow(uint64_t id);
  void changed() const;

  Client& client_;
  LogPrinter& printer_;
  const int event_fd_;
  mutable std::mutex mutex_;
  v1::Job job_;
  bool logs_complete_ = false;
  bool output_closed_ = false;
  absl::Status trouble_;
  const WatchOptions options_;
  JobNews news_;                                   // of the watching thread
  uint64_t newest_incident_ = 0;                   // the same
  std::thread watching_, following_, cancelling_;  // the watching thread starts the following one
};

}  // namespace muster::cli
