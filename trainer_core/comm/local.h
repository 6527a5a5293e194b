// The `local` transport: ranks are threads of one process. For tests and for programs that run alone (a world of one).
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/progress_page.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// What the ranks of one world share. Any thread may join; transports keep the shared state alive, so the world may be destroyed
// before them.
class LocalWorld {
 public:
  LocalWorld(int size, std::chrono::milliseconds timeout);

  // Rank `rank`'s end, once per rank. A transport that is destroyed has left: who waits for it gets Unavailable.
  std::shared_ptr<Transport> join(int rank) const;
  // The same with one group, of all ranks. `page` may be null, and outlives the group.
  std::unique_ptr<ProcessGroup> join(int rank, ProgressWriter* page, std::string name) const;

 private:
  int size_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<std::byte> memory_;  // all mailboxes
};

}  // namespace muster::trainer
