// The communication of a rank with the other ranks that write or read the same checkpoint. The
// interface separates the checkpoint code from process groups; rank/group_peers.h implements it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// One rank's view of the ranks that write or read a checkpoint together. Called by one thread at a
// time. All ranks must call the same functions in the same order. Errors are those of the
// transport; the operation then ends, and no rank publishes anything.
class CheckpointPeers {
 public:
  virtual ~CheckpointPeers() = default;

  virtual int rank() const = 0;  // rank 0 is the leader
  virtual int size() const = 0;
  // Returns the number of `rank` among all ranks of the job, for messages.
  virtual int world_rank(int rank) const = 0;

  // Returns the texts of all ranks in rank order on the leader, and an empty vector on all other
  // ranks.
  virtual absl::StatusOr<std::vector<std::string>> gather(std::string_view mine) = 0;
  // Broadcasts the leader's text: returns it on all ranks.
  virtual absl::StatusOr<std::string> share(std::string_view leader_text) = 0;
};

// A message between ranks: a status and additional text.
struct PeerMessage {
  absl::Status status;
  std::string body = {};

  // Encodes the message as a text for CheckpointPeers.
  std::string text() const;
  // Decodes a text. Returns a message with the status Internal if the text is not a message.
  static PeerMessage parse(std::string_view text);
};

// Broadcasts the leader's message: returns it on all ranks, or the error of the transport.
absl::StatusOr<PeerMessage> share_message(CheckpointPeers& peers, const PeerMessage& from_leader);

// Returns the messages of all ranks in rank order on the leader, and an empty vector on all other
// ranks.
absl::StatusOr<std::vector<PeerMessage>> gather_messages(CheckpointPeers& peers,
                                                         const PeerMessage& mine);

// Returns one of the errors in the messages of all ranks, with the number of its rank unless this
// is the leader. Errors other than DataLoss have priority; among errors of equal priority, that of
// the lowest rank.
absl::Status first_error(const CheckpointPeers& peers, const std::vector<PeerMessage>& messages);

}  // namespace muster::trainer
