// The ranks that write or read one checkpoint together, from the view of one of them. The interface
// keeps process groups out of the checkpoint code; trainer_core/rank/group_peers.h implements it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// One thread at a time; all ranks call the same functions in the same order. An error is the
// transport's and ends the operation: no rank publishes anything.
class CheckpointPeers {
 public:
  virtual ~CheckpointPeers() = default;

  virtual int rank() const = 0;  // 0 leads
  virtual int size() const = 0;
  // Returns the number of a rank among all ranks of the job, for messages.
  virtual int world_rank(int rank) const = 0;

  // Returns every rank's text, in rank order, on the leader; an empty vector on the others.
  virtual absl::StatusOr<std::vector<std::string>> gather(std::string_view mine) = 0;
  // Returns the leader's text on all ranks.
  virtual absl::StatusOr<std::string> share(std::string_view leaders) = 0;
};

// A status and additional text, encoded as a text.
struct PeerMessage {
  absl::Status status;
  std::string body = {};

  std::string text() const;
  // Returns Internal if the text is no message.
  static PeerMessage parse(std::string_view text);
};

// Returns the leader's message on all ranks, or the transport's error.
absl::StatusOr<PeerMessage> share_message(CheckpointPeers& peers, const PeerMessage& leaders);

// Returns the messages of all ranks on the leader; an empty vector on the others.
absl::StatusOr<std::vector<PeerMessage>> gather_messages(CheckpointPeers& peers,
                                                         const PeerMessage& mine);

// Returns the decisive error among those of all ranks, with the rank's number unless it is the
// leader: errors other than damage first, then the lowest rank.
absl::Status first_error(const CheckpointPeers& peers, const std::vector<PeerMessage>& messages);

}  // namespace muster::trainer
