// Detects whether anyone has read from a pipe.
#pragma once

#include <memory>

namespace muster {

// Watches a pipe from its creation on. The kernel reports each read, by any process, of at least
// one byte. Not thread-safe.
class ReadWatch {
 public:
  // Returns null if `fd` is no pipe, or the kernel does not report reads of pipes. Consumes
  // nothing.
  static std::unique_ptr<ReadWatch> start(int fd);
  ~ReadWatch();
  ReadWatch(const ReadWatch&) = delete;
  ReadWatch& operator=(const ReadWatch&) = delete;

  // Returns whether the pipe was read since start().
  bool was_read() const;

 private:
  explicit ReadWatch(int events) : events_(events) {}

  const int events_;  // owned
  mutable bool was_read_ = false;
};

}  // namespace muster
