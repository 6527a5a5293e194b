// Reserves space on the disk of the coordinator's state. If the disk is full, a coordinator that is
// stopped can still store its last decisions, and the next one can start.
//
// Used by one thread at a time, like the storage.
#pragma once

#include <cstdint>
#include <string>

namespace muster::coordinator {

// The reserved bytes: enough for the records of the largest job. The state itself is seldom larger.
constexpr int64_t kReservedBytes = 16 << 20;

class SpaceReserve {
 public:
  // The space is that of the file <state_dir>/reserve. The constructor does not access the disk.
  explicit SpaceReserve(const std::string& state_dir) : path_(state_dir + "/reserve") {}

  // Reserves the space unless it is reserved already. If the disk has too little space, reserves
  // none.
  void take();
  // Frees the reserved space. Returns false if none was reserved.
  bool release();

 private:
  std::string path_;
};

}  // namespace muster::coordinator
