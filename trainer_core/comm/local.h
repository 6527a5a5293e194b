// The `local` transport: ranks are threads of one process. For tests and for programs that run
// alone (a world of one).
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/progress_page.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// The state that the ranks of one world share. Any thread may join. Transports keep the state
// alive, so this object may be destroyed before them.
class LocalWorld {
 public:
  LocalWorld(int size, std::chrono::milliseconds timeout);

  // Returns rank `rank`'s end; called once per rank. Destroying a transport leaves the world: ranks
  // that wait for it get Unavailable.
  std::shared_ptr<Transport> join(int rank) const;
  // The same with one group of all ranks. `page` may be null and must outlive the group.
  std::unique_ptr<ProcessGroup> join(int rank, ProgressWriter* page, std::string name) const;

 private:
  int size_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<std::byte> memory_;  // all mailboxes
};

}  // namespace muster::trainer
