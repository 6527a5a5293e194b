// Exchanges files and texts between ranks, each sending and receiving at once. Local checkpoints
// are copied with it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/local_plan.h"
#include "trainer_core/checkpoint/manifest.h"
#include "trainer_core/comm/comm.h"

namespace muster::trainer {

constexpr int kNoPeer = -1;

// The ranks that this rank sends to and receives from in one exchange; either may be kNoPeer. Both
// sides of a transfer name each other.
struct Partners {
  int to = kNoPeer;
  int from = kNoPeer;
};

Partners partners_in(const std::vector<FileTransfer>& round, int rank);

// Whether a status is an error of a group, which makes the group unusable.
inline bool is_group_error(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// Sends `mine` and returns the received text; empty without a sender. Errors are the group's.
absl::StatusOr<std::string> exchange_texts(ProcessGroup& group, const Partners& partners,
                                           std::string_view mine, std::string_view name);

// Sends `outgoing` from `folder` and writes `incoming` there, block by block, so that a rank holds
// one block of each. Null: no file in that direction. Returns the group's error. Local faults, of a
// disk or of a damaged file, go to `local`, and the exchange continues: peers still receive all
// blocks, and a damaged file arrives as a damaged one.
absl::Status exchange_files(ProcessGroup& group, const Partners& partners,
                            const std::string& folder, const StoredFile* outgoing,
                            const StoredFile* incoming, std::string_view name, absl::Status& local);

}  // namespace muster::trainer
