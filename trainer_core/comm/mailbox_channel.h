// One rank's end of a channel over mailboxes (mailbox.h). Internal to comm.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/time.h"
#include "trainer_core/comm/mailbox.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

class MailboxTransport;

class MailboxChannel : public Channel {
 public:
  // `index` of the rank's own mailbox's channel.
  MailboxChannel(MailboxTransport& transport, int index, uint64_t id, std::span<const int> members);

  size_t round_bytes_max(std::span<const int> members) const override;
  absl::Status exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override;
  absl::Status exchange_combine(std::span<const Outgoing> out, std::span<const int> from,
                                size_t bytes, Combine combine) override;

 private:
  struct Peer {
    int mailbox = 0;
    int channel = -1;       // on its mailbox; -1: not opened yet when last looked for
    uint64_t sent = 0;      // messages to it
    uint64_t received = 0;  // and from it
  };

  Peer& peer(int member) { return peers_[static_cast<size_t>(member)]; }
  Part& own_part(int lane, const Peer& to) const;

  absl::Status begin_round();
  absl::Status post(std::span<const Outgoing> out);
  // Until all that this rank has posted in a lane has been read.
  absl::Status await_taken(int lane);
  // Until the message that comes next from each of `members_` is there; parts_ are theirs.
  absl::Status await_posted();
  // From now on the sender's memory stays as it is, until taken().
  absl::Status claim(int member, Part& part, size_t bytes);
  void taken(int member, Part& part);
  // After a failure this rank leaves, or this channel where they are isolated, but not before nobody reads its memory any more.
  absl::Status end_round(absl::Status status);

  Part* posted_by(Peer& from);
  const std::byte* bytes_of(const Peer& from, const Part& part) const;
  // Until `ready` for all of `members`; DeadlineExceeded says "`what` rank 3 within …".
  absl::Status wait_for(std::span<const int> members, absl::FunctionRef<bool(Peer&)> ready,
                        std::string_view what);
  // False where there is nothing to wait for any more.
  bool announce(std::span<const int> members, absl::FunctionRef<bool(Peer&)> ready);
  // Unavailable where a peer has failed, or has left without what is waited for.
  absl::Status check_peers(std::span<const int> members, absl::FunctionRef<bool(Peer&)> ready,
                           bool look);
  absl::Status late(std::string_view what, std::span<const int> silent);
  void ring(Peer& peer);
  void revoke();
  // Ends all channels, or none where they are isolated.
  void give_up(const std::string& reason);
  absl::Status revoked(const Peer& by) const;

  MailboxTransport& transport_;
  int index_;
  uint64_t id_;
  std::vector<Peer> peers_;  // by member
  int lane_ = 0;             // that the next round posts in
  Instant deadline_;
  absl::Status broken_;       // an isolated channel's first failure
  bool lent_ = false;         // peers read memory of this rank's caller in this round
  std::vector<int> all_;      // members
  std::vector<int> members_;  // from whom the round receives
  std::vector<int> missing_;
  std::vector<Part*> parts_;
  std::vector<const std::byte*> versions_;
};

}  // namespace muster::trainer
