#include "worker/shell/rank_input.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::worker {
namespace {

std::optional<off_t> position_in_file(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  const off_t position = lseek(fd, 0, SEEK_CUR);
  return position < 0 ? std::nullopt : std::optional(position);
}

}  // namespace

RankInput::RankInput(int fd) : fd_(fd), start_(position_in_file(fd)) {}

absl::Status RankInput::prepare() {
  if (start_) {
    lseek(fd_, *start_, SEEK_SET);
    return absl::OkStatus();
  }
  pollfd state{.fd = fd_, .events = POLLIN, .revents = 0};
  poll(&state, 1, 0);
  const bool has_data = (state.revents & POLLIN) != 0;
  // The writer is gone and nothing is left.
  const bool is_at_end = !has_data && (state.revents & POLLHUP) != 0;
  if (is_at_end && had_data_) {
    return absl::PermissionDeniedError(
        "an earlier attempt has read its standard input, a pipe, to the end; pass a file (< FILE), "
        "which each attempt reads from its start, or --stdin none");
  }
  had_data_ = had_data_ || has_data;
  return absl::OkStatus();
}

}  // namespace muster::worker
