// Records when each rank last wrote to its log, the only sign of progress of a program that reports
// nothing else. Uses the file's size and the monotonic clock, because file times use the wall
// clock, which jumps.
//
// Not thread-safe: called on the event loop's thread only.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "common/time.h"
#include "worker/core/rank.h"

namespace muster::worker {

class OutputWatch {
 public:
  // Returns the time of the last observed growth of the log, as of this and earlier calls;
  // Instant{} if it has always been empty. An unreadable log counts as unchanged.
  Instant last_written(const RankKey& key, const std::string& log_path, Instant now);
  void forget(const RankKey& key) { seen_.erase(key); }

 private:
  struct Seen {
    off_t bytes = 0;
    Instant at{};
  };
  std::map<RankKey, Seen> seen_;
};

}  // namespace muster::worker
