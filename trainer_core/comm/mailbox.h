// Mailboxes: shared memory through which ranks exchange messages. Ranks are threads of one process
// (transport `local`) or processes of one host (transport `shm`). Internal to comm.
//
// Each rank has a mailbox that all ranks can read and write. A message is stored in the mailbox of
// its sender, in the part for its receiver, until the receiver has taken it. The states of a part
// are:
//
//                    sender                         receiver
//   kFree ──▶ where, bytes, number = n ──▶ kPosted ──▶ kReading ──▶ kTaken (reusable, as kFree)
//                                            └──▶ kRevoked: the sender gave up and may free it
//
// A mailbox consists of three areas, whose offsets follow from the number of ranks:
//   Mailbox                       state, reason
//   ChannelArea[kChannelsMax]  id, bell, awaited; each followed by kSlots slots, which have one
//                                 Part per rank
//   staging                       kChannelsMax x kSlots buffers of `staging_bytes`, from which
//                                 processes send; threads send from any memory
//
// A rank that waits for peers sets the bit of each of them in `awaited` and sleeps on the futex
// `bell` of its channel. A peer that posts or takes a message clears its own bit; the peer that
// clears the last bit wakes the rank (rings the bell). So a round costs one wake-up instead of one
// per peer, which would dominate the time of small rounds if there are more ranks than cores. A
// rank that leaves rings all bells.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace muster::trainer {

// The maximum number of channels of a rank. A mesh has some ten groups, each with a few channels.
constexpr int kChannelsMax = 64;
// The number of rounds of a channel that can be in progress: one is read while the next is written.
constexpr int kSlots = 2;

// The state of a part, see the diagram above.
enum class PartState : uint32_t { kFree, kPosted, kReading, kTaken, kRevoked };

// A message, or room for one, from the mailbox's rank to one receiver.
struct alignas(64) Part {
  // The number of the message among those from this sender to this receiver, from 1.
  std::atomic<uint64_t> number;
  std::atomic<PartState> state;
  uint64_t where;  // offset of the data from the start of the sender's mailbox
  uint64_t bytes;
};

// The part of a mailbox for one channel.
struct alignas(64) ChannelArea {
  std::atomic<uint64_t> id;  // id of the channel; 0: not opened
  // The bits of the mailboxes that the owner waits for (mailbox_bit). Two mailboxes can have the
  // same bit, and may then wake the owner too early.
  std::atomic<uint64_t> awaited;
  std::atomic<uint32_t> bell;  // futex on which the owner sleeps
};
// Returns the bit of a mailbox in ChannelArea::awaited.
constexpr uint64_t mailbox_bit(int mailbox) {
  return uint64_t{1} << (static_cast<unsigned>(mailbox) % 64);
}

// The state of a rank. kLeft: it has ended normally, and the messages that it has sent remain
// valid. kFailed: every rank that is in a round with it fails.
enum class MailboxState : uint32_t { kHere, kLeft, kFailed };

// The first area of a mailbox.
struct alignas(64) Mailbox {
  std::atomic<MailboxState> state;
  std::array<char, 252> reason;  // written before the state changes: "rank 3 is gone"
};

// The sizes of a mailbox, which are the same for all mailboxes of a transport.
struct MailboxLayout {
  int ranks = 1;
  size_t staging_bytes = 0;
};

// A view of the mailbox of one rank. Does not own the memory. Zeroed memory is a valid, empty
// mailbox.
class MailboxView {
 public:
  MailboxView(std::byte* memory, const MailboxLayout& layout)
      : memory_(memory), ranks_(static_cast<size_t>(layout.ranks)), layout_(layout) {}

  // Return the first area, the area of channel `c`, and the part for `rank` in a slot of the
  // channel.
  Mailbox& mailbox() const { return *reinterpret_cast<Mailbox*>(memory_); }
  ChannelArea& channel(int c) const {
    return *reinterpret_cast<ChannelArea*>(memory_ + channel_offset(c));
  }
  Part& part(int c, int slot, int rank) const {
    const size_t index = static_cast<size_t>(slot) * ranks_ + static_cast<size_t>(rank);
    return *reinterpret_cast<Part*>(memory_ + channel_offset(c) + sizeof(ChannelArea) +
                                    index * sizeof(Part));
  }
  // Returns the offset of a staging buffer from the start of the mailbox.
  size_t staging_offset(int c, int slot) const {
    const size_t index = static_cast<size_t>(c) * kSlots + static_cast<size_t>(slot);
    return round_up(channel_offset(kChannelsMax), kPage) + index * layout_.staging_bytes;
  }
  // Returns the size of a mailbox.
  size_t bytes() const { return staging_offset(kChannelsMax, 0); }
  std::byte* memory() const { return memory_; }

 private:
  static constexpr size_t kPage = 4096;

  static constexpr size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
  }

  size_t channel_offset(int c) const {
    const size_t each = sizeof(ChannelArea) + kSlots * ranks_ * sizeof(Part);
    return sizeof(Mailbox) + static_cast<size_t>(c) * each;
  }

  std::byte* memory_;
  size_t ranks_;
  MailboxLayout layout_;
};

}  // namespace muster::trainer
