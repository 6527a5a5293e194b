#include "worker/shell/logs/output_watch.h"

namespace muster::worker {

Instant OutputWatch::last_written(const RankKey& key, std::optional<off_t> bytes, Instant now) {
  Seen& seen = seen_[key];
  if (!bytes || *bytes == seen.bytes) return seen.at;
  seen = {*bytes, now};
  return seen.at;
}

}  // namespace muster::worker
