// Records when each rank last wrote to its log. For a program that reports no progress, its output
// is the only sign of progress. Detects writes by the file's size and takes the monotonic clock's
// time, because file times use the wall clock, which jumps.
//
// Called on the event loop's thread only.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>

#include "common/time/time.h"
#include "worker/core/rank.h"

namespace muster::worker {

class OutputWatch {
 public:
  // Compares the log's size with that of the previous call. Returns the `now` of the newest call at
  // which the size had changed; Instant{} if the log has always been empty. `bytes`: nullopt if the
  // log could not be read; it then counts as unchanged.
  Instant last_written(const RankKey& key, std::optional<off_t> bytes, Instant now);
  void forget(const RankKey& key) { seen_.erase(key); }

 private:
  struct Seen {
    off_t bytes = 0;
    Instant at{};
  };
  std::map<RankKey, Seen> seen_;
};

}  // namespace muster::worker
