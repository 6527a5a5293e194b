// Exchanges files and texts between ranks, for copies of local checkpoints. A rank sends and
// receives at the same time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/local_plan.h"
#include "trainer_core/checkpoint/manifest.h"
#include "trainer_core/comm/comm.h"

namespace muster::trainer {

// The value of Partners that states that there is no peer.
constexpr int kNoPeer = -1;

// The ranks to which this rank sends and from which it receives in an exchange; either may be
// kNoPeer. If rank a sends to rank b, then b must receive from a.
struct Partners {
  int to = kNoPeer;
  int from = kNoPeer;
};

// Returns the partners of `rank` in a round of transfers.
Partners partners_in(const std::vector<FileTransfer>& round, int rank);

// Returns whether a status is an error of a process group, which makes the group unusable.
inline bool is_group_error(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// Sends `mine` to partners.to and returns the text of partners.from; empty without a sender.
// Returns the errors of the group.
absl::StatusOr<std::string> exchange_texts(ProcessGroup& group, const Partners& partners,
                                           std::string_view mine, std::string_view name);

// Sends the file `outgoing` of `folder` and writes the file `incoming` to the same folder; null: no
// file in that direction. Files are sent block by block, so memory holds one block of each. Returns
// the errors of the group. Stores a local fault (of the disk, or a damaged file) in `local` and
// continues the exchange, so that peers receive all blocks; they detect a damaged file by its
// digest.
absl::Status exchange_files(ProcessGroup& group, const Partners& partners,
                            const std::string& folder, const StoredFile* outgoing,
                            const StoredFile* incoming, std::string_view name, absl::Status& local);

}  // namespace muster::trainer
