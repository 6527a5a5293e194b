// The transport `local`: ranks are threads of one process. It is used by tests, and by programs
// that consist of a single rank.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/progress/progress_page.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// A world of threads, and the memory that they share. Thread-safe. Transports share the ownership
// of this memory, so the object may be destroyed before them.
class LocalWorld {
 public:
  // Makes a world of `size` ranks; `timeout` is that of a round.
  LocalWorld(int size, std::chrono::milliseconds timeout);

  // Returns the transport of rank `rank`. Called once per rank. A rank leaves the world when its
  // transport is destroyed; ranks that wait for it then get Unavailable.
  std::shared_ptr<Transport> join(int rank) const;
  // Does the same, and returns a group of all ranks over the transport. `page` may be null and must
  // outlive the group.
  std::unique_ptr<ProcessGroup> join(int rank, ProgressWriter* page, std::string name) const;

 private:
  int size_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<std::byte> memory_;  // the mailboxes of all ranks
};

}  // namespace muster::trainer
