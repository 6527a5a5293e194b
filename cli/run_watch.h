// Follows one job of an embedded coordinator: its ranks' output and its state go to the terminal, and an
// eventfd says when there is something to decide.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "cli/client.h"
#include "cli/job_news.h"
#include "cli/log_printer.h"

namespace muster::cli {

// Two threads read the streams; everything public is for the owner's thread. `client` and `printer` must outlive it.
class RunWatch {
 public:
  RunWatch(Client& client, LogPrinter& printer, const v1::Job& job);
  // Ends the streams.
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  // Readable after every change of what follows; take_event() resets it.
  int event_fd() const { return event_fd_; }
  void take_event() const;

  v1::Job job() const;
  bool has_ended() const;          // the job is in a terminal state
  bool logs_are_complete() const;  // everything that the ranks wrote has been printed
  bool output_is_closed() const;   // nobody reads our output any more
  // Why the watch ended before the job did; ok otherwise.
  absl::Status trouble() const;

 private:
  void watch(uint64_t id);
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
  JobNews news_;  // of the watching thread
  std::thread watching_, following_;
};

}  // namespace muster::cli
