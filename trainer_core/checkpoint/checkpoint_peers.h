// The ranks that write, or read, one checkpoint together, as one of them sees them. The checkpoint's own code knows no process groups;
// a transport without checkpoints' needs (trainer_core/rank/group_peers.h) is behind this.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// One thread at a time; all ranks call the same functions in the same order. An error is the transport's, and what was going on is
// over then: no rank publishes anything.
class CheckpointPeers {
 public:
  virtual ~CheckpointPeers() = default;

  virtual int rank() const = 0;  // 0 leads
  virtual int size() const = 0;
  // By which people know a rank: its number among all of the job's.
  virtual int world_rank(int rank) const = 0;

  // For the leader what each rank gave, in their order; for the others nothing.
  virtual absl::StatusOr<std::vector<std::string>> gather(std::string_view mine) = 0;
  // What the leader gave, on all.
  virtual absl::StatusOr<std::string> share(std::string_view leaders) = 0;
};

// A status, and what else there is to say, as a text.
struct PeerMessage {
  absl::Status status;
  std::string body = {};

  std::string text() const;
  // Internal where it is none.
  static PeerMessage parse(std::string_view text);
};

// What the leader found, on all ranks. The transport's error where there is one.
absl::StatusOr<PeerMessage> share_message(CheckpointPeers& peers, const PeerMessage& leaders);

// The messages of all ranks on the leader; none on the others.
absl::StatusOr<std::vector<PeerMessage>> gather_messages(CheckpointPeers& peers,
                                                         const PeerMessage& mine);

// The error that counts among those of all ranks, with the rank's number where it is not the leader's: one that is no damage
// before one that is; of several the first.
absl::Status first_error(const CheckpointPeers& peers, const std::vector<PeerMessage>& messages);

}  // namespace muster::trainer
