// The `local` backend: ranks are threads of one process. For tests and for programs that run alone
// (a group of one).
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/progress_page.h"
#include "trainer_core/comm/comm.h"

namespace muster::trainer {

class LocalMeeting;

// What the ranks of one group share. Any thread may join; groups keep the shared state alive, so
// the world may be destroyed before them.
class LocalWorld {
 public:
  LocalWorld(int size, std::chrono::milliseconds timeout);
  ~LocalWorld();

  // Rank `rank`'s end, once per rank. A group that is destroyed has left: its peers' next
  // collective fails with Unavailable. `page` may be null, and outlives the group.
  std::unique_ptr<ProcessGroup> join(int rank, ProgressWriter* page, std::string name);

 private:
  std::shared_ptr<LocalMeeting> meeting_;
};

}  // namespace muster::trainer
