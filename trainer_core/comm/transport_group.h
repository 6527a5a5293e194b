// Process groups over a transport: implements the collectives of comm.h once, as rounds of
// messages.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/progress_page.h"
#include "trainer_core/comm/comm.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

struct GroupSpec {
  std::string name;
  std::vector<int> members;  // world ranks in the group's order, this one among them
  std::vector<int> nodes;    // each member's node; empty: all on one
};

// Sends no message. `page` may be null and must outlive the group.
std::unique_ptr<ProcessGroup> make_group(std::shared_ptr<Transport> transport, GroupSpec spec,
                                         ProgressWriter* page);
// Makes the group of all ranks.
std::unique_ptr<ProcessGroup> make_world_group(std::shared_ptr<Transport> transport,
                                               std::string name, ProgressWriter* page);

}  // namespace muster::trainer
