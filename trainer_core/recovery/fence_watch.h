// Ends a rank whose attempt has been replaced. A worker that is cut off from its coordinator cannot
// stop its ranks, and the coordinator may have started the job's next attempt elsewhere. Both
// attempts can read the owner of the checkpoint directory (checkpoint/owner.h). The rank watches
// it, and so ends within seconds instead of at its next save.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/time/time.h"
#include "trainer_core/checkpoint/owner.h"

namespace muster::trainer {

// The time between two reads of the owner. One rank of each node reads it, so the load of a shared
// file system is small.
constexpr Duration kFenceWatchInterval = std::chrono::seconds(3);

class FenceWatch {
 public:
  // Watches the owner of `directory` on a thread of its own. Calls `on_fenced` once, on that
  // thread, with a sentence, when a later attempt of the same job becomes the owner. An owner that
  // is there at the start does not count.
  FenceWatch(std::string directory, CheckpointOwner mine,
             std::function<void(const std::string& why)> on_fenced,
             Duration interval = kFenceWatchInterval);
  // Stops the watch and joins its thread: `on_fenced` is not called afterwards. Waits for a read in
  // progress.
  ~FenceWatch();
  FenceWatch(const FenceWatch&) = delete;
  FenceWatch& operator=(const FenceWatch&) = delete;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace muster::trainer
