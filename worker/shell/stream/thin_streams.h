// Speeds up TCP's retransmission for streams with few packets in flight, such as heartbeats. On
// these, TCP detects a lost packet only by a timeout, and doubles the timeout after each
// retransmission: after a network outage of 0.2 s nothing arrives for 0.9 s. With
// TCP_THIN_LINEAR_TIMEOUTS (tcp(7)) the kernel retransmits the first six times at even intervals.
// After a longer outage only a new connection is fast.
#pragma once

#include <cstdint>

namespace muster::worker {

// Enables the option on all TCP connections of this process to the port `peer_port`, because gRPC
// does not expose its sockets. Ignores failures. Thread-safe.
void repeat_evenly(uint16_t peer_port);

// Returns whether there are TCP connections of this process to the port `peer_port`, and each of
// them has retransmitted a packet that is still not acknowledged. Returns false on failures.
// Thread-safe.
bool only_retransmits(uint16_t peer_port);

}  // namespace muster::worker
