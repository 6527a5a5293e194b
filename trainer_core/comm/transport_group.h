// Process groups over any transport. They implement the collectives of comm.h as rounds of
// messages.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/progress/progress_page.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// The definition of a group.
struct GroupSpec {
  std::string name;
  std::vector<int> members;  // world ranks in the group's order, including this rank
  std::vector<int> nodes;    // node of each member; empty: all are on one node
};

// Makes a group. Sends no message. `page` may be null and must outlive the group.
std::unique_ptr<ProcessGroup> make_group(std::shared_ptr<Transport> transport, GroupSpec spec,
                                         ProgressWriter* page);
// Makes a group of all ranks.
std::unique_ptr<ProcessGroup> make_world_group(std::shared_ptr<Transport> transport,
                                               std::string name, ProgressWriter* page);

}  // namespace muster::trainer
