// The channel of a MailboxTransport. Internal to comm.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/time/time.h"
#include "trainer_core/comm/mailbox.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

class MailboxTransport;

// One rank's end of a channel over mailboxes (mailbox.h); Channel documents the methods.
class MailboxChannel : public Channel {
 public:
  // `index` is the index of the channel in this rank's own mailbox.
  MailboxChannel(MailboxTransport& transport, int index, uint64_t id, std::span<const int> members);

  size_t round_bytes_max(std::span<const int> members) const override;
  absl::Status exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override;
  absl::Status exchange_combine(std::span<const Outgoing> out, std::span<const int> from,
                                size_t bytes, Combine combine) override;

 private:
  struct Peer {
    int mailbox = 0;        // index of its mailbox
    int channel = -1;       // index of the channel in its mailbox; -1: not opened when last checked
    uint64_t sent = 0;      // number of messages to it
    uint64_t received = 0;  // number of messages from it
  };

  Peer& peer(int member) { return peers_[static_cast<size_t>(member)]; }
  Part& own_part(int slot, const Peer& to) const;

  absl::Status begin_round();
  absl::Status post(std::span<const Outgoing> out);
  // Blocks until the receivers have taken all messages that this rank has posted in a slot.
  absl::Status await_consumed(int slot);
  // Blocks until the next message from each of `members_` has arrived. Stores their parts in
  // parts_.
  absl::Status await_posted();
  // Marks a message as being read, so that its sender does not change the memory before taken().
  // Returns an error if its size is not `bytes`, or if the sender has revoked it.
  absl::Status claim(int member, Part& part, size_t bytes);
  // Marks a message as taken and wakes its sender if that waits.
  void taken(int member, Part& part);
  // Ends a failed round: blocks until no peer reads this rank's memory, then leaves the transport
  // or, if channels are isolated, closes only this channel.
  absl::Status end_round(absl::Status status);

  Part* posted_by(Peer& from);
  const std::byte* bytes_of(const Peer& from, const Part& part) const;
  // Blocks until `ready` returns true for all of `members`. Returns DeadlineExceeded with the
  // message "<what> rank 3 within …".
  absl::Status wait_for(std::span<const int> members, absl::FunctionRef<bool(Peer&)> ready,
                        std::string_view what);
  // Sets, in this rank's own mailbox, the `awaited` bits of the peers that are not ready, so that
  // they wake this rank. Returns false if all of them are ready.
  bool announce(std::span<const int> members, absl::FunctionRef<bool(Peer&)> ready);
  // Returns Unavailable if a peer has failed, or has left before it was ready. `probe` also checks
  // for peers that were killed, which needs a system call.
  absl::Status check_peers(std::span<const int> members, absl::FunctionRef<bool(Peer&)> ready,
                           bool probe);
  absl::Status late(std::string_view what, std::span<const int> silent);
  void wake(Peer& peer);
  void revoke();
  // Fails all channels or, if channels are isolated, only this one.
  void give_up(const std::string& reason);
  absl::Status revoked(const Peer& by) const;

  MailboxTransport& transport_;
  int index_;
  uint64_t id_;
  std::vector<Peer> peers_;  // indexed by member
  int slot_ = 0;             // the slot of the next round
  Instant deadline_;
  // The first failure of this channel after isolate_channels() (transport.h); OK: none.
  absl::Status broken_;
  // Whether peers read the caller's buffers directly in this round. Possible only if the ranks are
  // threads of one process.
  bool peers_read_buffers_ = false;
  std::vector<int> all_;      // all members
  std::vector<int> members_;  // the members from which the round receives
  std::vector<int> missing_;
  std::vector<Part*> parts_;
  std::vector<const std::byte*> contributions_;
};

}  // namespace muster::trainer
