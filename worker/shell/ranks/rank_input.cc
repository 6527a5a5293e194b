#include "worker/shell/ranks/rank_input.h"

#include <unistd.h>

namespace muster::worker {

absl::Status RankInput::prepare() const {
  if (const auto position = first_.position()) {
    lseek(fd_, *position, SEEK_SET);
    return absl::OkStatus();
  }
  if (!first_.is_lost(fd_) || (watch_ != nullptr && !watch_->was_read())) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "an earlier attempt has read its standard input, a pipe, to the end; pass a file (< FILE), "
      "which each attempt reads from its start, or --stdin none");
}

}  // namespace muster::worker
