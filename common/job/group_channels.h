// Channels of process groups. A group's name contains its channel ("data#6"), and the coordinator
// reads the channel from the name.
#pragma once

namespace muster {

// The lowest channel of background threads, which save checkpoints or agree on a stop while the
// computation continues.
constexpr int kFirstBackgroundChannel = 6;

}  // namespace muster
