// Process groups over a transport: the collectives of comm.h, written once as rounds of messages.
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
  std::vector<int> nodes;    // of the members, in their order; empty: all on one
};

// Takes no message. `page` may be null, and outlives the group.
std::unique_ptr<ProcessGroup> make_group(std::shared_ptr<Transport> transport, GroupSpec spec,
                                         ProgressWriter* page);
// Of all ranks.
std::unique_ptr<ProcessGroup> make_world_group(std::shared_ptr<Transport> transport,
                                               std::string name, ProgressWriter* page);

}  // namespace muster::trainer
