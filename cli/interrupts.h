// Ctrl-C, SIGTERM and a closed terminal as a file descriptor, so that one poll() waits for everything.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

namespace muster::cli {

// Make it before the first thread: it blocks the signals, and threads inherit that. One per process, one thread.
class Interrupts {
 public:
  static absl::StatusOr<std::unique_ptr<Interrupts>> block();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Readable when a signal is waiting.
  int fd() const { return fd_; }
  // Takes all waiting signals; returns how many there have been in all.
  int take();
  // From here on a signal ends the process as it ends any other: there is nothing left to be saved or stopped. Not those
  // that came before.
  void release();

 private:
  explicit Interrupts(int fd) : fd_(fd) {}

  const int fd_;
  int count_ = 0;
};

}  // namespace muster::cli
