// Space on the disk of the state that is reserved for the end: with a full disk a coordinator that
// is stopped can still store its last decisions, and the next one can start.
//
// Used by one thread at a time, as the storage is.
#pragma once

#include <cstdint>
#include <string>

namespace muster::coordinator {

// Enough for the records of the largest job. The state itself is seldom larger.
constexpr int64_t kReservedBytes = 16 << 20;

class SpaceReserve {
 public:
  // The file that holds the space: <state_dir>/reserve. Does not touch the disk.
  explicit SpaceReserve(const std::string& state_dir) : path_(state_dir + "/reserve") {}

  // Reserves the space unless it is reserved already. Does nothing on a disk that has too little.
  void take();
  // Gives the space back to the disk. Returns false if none was reserved.
  bool release();

 private:
  std::string path_;
};

}  // namespace muster::coordinator
