// When each rank has last written to its log: the only sign of life of a program that says nothing else of itself. By the file's size and
// this process's clock: the file's own time is the wall's, which jumps.
//
// Not thread-safe: the event loop's thread calls everything.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "common/time.h"
#include "worker/core/rank.h"

namespace muster::worker {

class OutputWatch {
 public:
  // When something new was there, as far as earlier calls could tell; Instant{} while there was nothing at all. A log that cannot be read has
  // no news.
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
