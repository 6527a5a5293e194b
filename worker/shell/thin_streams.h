// Retransmission for streams with few packets in flight. A heartbeat stream detects a lost packet
// by timeout alone, which TCP doubles each time: after a network outage of 0.2 s nothing arrives
// for 0.9 s. With TCP_THIN_LINEAR_TIMEOUTS (tcp(7)) the kernel retransmits at even intervals.
#pragma once

#include <cstdint>

namespace muster::worker {

// Enables the option on all TCP connections of this process to `peer_port`: gRPC does not expose
// its sockets. Best effort. Thread-safe.
void repeat_evenly(uint16_t peer_port);

}  // namespace muster::worker
