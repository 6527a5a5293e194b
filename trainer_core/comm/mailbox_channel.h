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
  // `index` is the channel's index in this rank's own mailbox.
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
  Part& own_part(int slot, const Peer& to) const;

  absl::Status begin_round();
  absl::Status post(std::span<const Outgoing> out);
  // Blocks until the receivers have taken everything that this rank has posted in a slot.
  absl::Status await_consumed(int slot);
  // Blocks until the next message of each of `members_` has arrived; stores their parts in parts_.
  absl::Status await_posted();
  // Keeps the sender's memory unchanged until taken().
  absl::Status claim(int member, Part& part, size_t bytes);
  void taken(int member, Part& part);
  // Ends a failed round: waits until no peer reads this rank's memory, then leaves the transport,
  // or closes this channel alone if channels are isolated.
  absl::Status end_round(absl::Status status);

  Part* posted_by(Peer& from);
  const std::byte* bytes_of(const Peer& from, const Part& part) const;
  // Blocks until `ready` holds for all of `members`. DeadlineExceeded reads "`what` rank 3 within
  // …".
  absl::Status wait_for(std::span<const int> members, absl::FunctionRef<bool(Peer&)> ready,
                        std::string_view what);
  // Sets the bits of the awaited peers. Returns false if nothing is left to wait for.
  bool announce(std::span<const int> members, absl::FunctionRef<bool(Peer&)> ready);
  // Returns Unavailable if a peer has failed, or has left before it was ready.
  absl::Status check_peers(std::span<const int> members, absl::FunctionRef<bool(Peer&)> ready,
                           bool look);
  absl::Status late(std::string_view what, std::span<const int> silent);
  void ring(Peer& peer);
  void revoke();
  // Ends all channels, or only this one if channels are isolated.
  void give_up(const std::string& reason);
  absl::Status revoked(const Peer& by) const;

  MailboxTransport& transport_;
  int index_;
  uint64_t id_;
  std::vector<Peer> peers_;  // by member
  int slot_ = 0;             // that the next round posts in
  Instant deadline_;
  absl::Status broken_;       // an isolated channel's first failure
  bool lent_ = false;         // peers read memory of this rank's caller in this round
  std::vector<int> all_;      // members
  std::vector<int> members_;  // that the round receives from
  std::vector<int> missing_;
  std::vector<Part*> parts_;
  std::vector<const std::byte*> versions_;
};

}  // namespace muster::trainer
