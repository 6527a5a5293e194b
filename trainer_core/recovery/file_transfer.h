// Files and texts from rank to rank, each rank sending and receiving at once: what local checkpoints are copied by.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/local_plan.h"
#include "trainer_core/checkpoint/manifest.h"
#include "trainer_core/comm/comm.h"

namespace muster::trainer {

constexpr int kNobody = -1;

// Whom this rank sends to and receives from in one exchange; either may be kNobody. What one names the other names, too.
struct Partners {
  int to = kNobody;
  int from = kNobody;
};

Partners partners_in(const std::vector<FileTransfer>& round, int rank);

// Whether a status is a group's: afterwards the group is of no more use.
inline bool is_group_error(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// Sends `mine`, and returns what came; empty without a sender. The group's errors.
absl::StatusOr<std::string> exchange_texts(ProcessGroup& group, const Partners& partners,
                                           std::string_view mine, std::string_view name);

// Sends `outgoing` of `folder` and puts `incoming` there, block by block, so that a rank holds one of each; null with nobody. Returns the
// group's error. What fails here, a disk or a file that is not what it should be, goes into `local`, and the exchange goes on: nobody
// waits for blocks that do not come, and a damaged file arrives as one.
absl::Status exchange_files(ProcessGroup& group, const Partners& partners,
                            const std::string& folder, const StoredFile* outgoing,
                            const StoredFile* incoming, std::string_view name, absl::Status& local);

}  // namespace muster::trainer
