#include "worker/shell/output_watch.h"

#include <sys/stat.h>

namespace muster::worker {

Instant OutputWatch::last_written(const RankKey& key, const std::string& log_path, Instant now) {
  Seen& seen = seen_[key];
  struct stat status {};
  if (stat(log_path.c_str(), &status) != 0 || status.st_size == seen.bytes) return seen.at;
  seen = {status.st_size, now};
  return seen.at;
}

}  // namespace muster::worker
