// A stream of heartbeats has few packets on their way, so that a lost one is found by its timeout alone, which TCP doubles each time: after a
// network that was away for 0.2 s nothing is heard for 0.9 s. The kernel can repeat them evenly instead (TCP_THIN_LINEAR_TIMEOUTS, tcp(7)).
#pragma once

#include <cstdint>

namespace muster::worker {

// Asks for that on this process's TCP connections to a port, whoever has made them: gRPC hands its sockets to nobody. Best effort. Any thread.
void repeat_evenly(uint16_t peer_port);

}  // namespace muster::worker
