// Channels of process groups, as far as the coordinator reads them from a group's name ("data#6").
#pragma once

namespace muster {

// From this channel on, a group belongs to threads that save or leave beside the computation.
constexpr int kFirstBackgroundChannel = 6;

}  // namespace muster
