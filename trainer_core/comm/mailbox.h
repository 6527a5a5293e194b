// The memory through which ranks that see each other's memory pass messages: threads of one process
// (`local`), or processes of one host (`shm`). Internal to comm.
//
// Each rank has a mailbox that all ranks can read and write. A message stays in its sender's
// mailbox, in the part for its receiver, until the receiver has taken it:
//
//                    sender                         receiver
//   kFree ──▶ where, bytes, number = n ──▶ kPosted ──▶ kReading ──▶ kTaken (as good as kFree)
//                                            └──▶ kRevoked: the sender gave up and may free it
//
// A mailbox (offsets follow from the number of ranks):
//   Mailbox                       state, reason
//   ChannelMailbox[kChannelsMax]  id, bell, awaited; each with kSlots slots of one Part per rank
//   staging                       kChannelsMax x kSlots buffers of `staging_bytes`, from which
//                                 processes send; threads send from any memory
//
// Sleeping: a rank sets a bit in `awaited` for each peer that it waits for and sleeps on its
// channel's `bell`. A peer that posts or takes clears its bit, and the last one rings. A round thus
// costs one wake-up instead of one per peer, which would dominate small rounds if ranks outnumber
// cores. A rank that leaves rings all bells.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace muster::trainer {

// Channels of a rank: a mesh has some ten groups, each with a few channels.
constexpr int kChannelsMax = 64;
// Concurrent rounds of a channel: one is read while the next is written.
constexpr int kSlots = 2;

enum class PartState : uint32_t { kFree, kPosted, kReading, kTaken, kRevoked };

struct alignas(64) Part {
  // number of the message among those from this sender to this receiver, from 1
  std::atomic<uint64_t> number;
  std::atomic<PartState> state;
  uint64_t where;  // from the beginning of the sender's mailbox
  uint64_t bytes;
};

struct alignas(64) ChannelMailbox {
  std::atomic<uint64_t> id;  // 0: not opened
  // Bits of awaited mailboxes (mailbox_bit). Two mailboxes may share a bit and then wake a sleeper
  // too early.
  std::atomic<uint64_t> awaited;
  std::atomic<uint32_t> bell;
};
constexpr uint64_t mailbox_bit(int mailbox) {
  return uint64_t{1} << (static_cast<unsigned>(mailbox) % 64);
}

// kLeft: ended normally; messages that it has sent remain valid. kFailed: every rank in a round
// with it fails.
enum class MailboxState : uint32_t { kHere, kLeft, kFailed };

struct alignas(64) Mailbox {
  std::atomic<MailboxState> state;
  std::array<char, 252> reason;  // written before the state changes: "rank 3 is gone"
};

// The layout, which is the same for all mailboxes of a transport.
struct MailboxLayout {
  int ranks = 1;
  size_t staging_bytes = 0;
};

// A view of one rank's mailbox. Owns nothing. All-zero memory is an empty mailbox.
class MailboxView {
 public:
  MailboxView(std::byte* memory, const MailboxLayout& layout)
      : memory_(memory), ranks_(static_cast<size_t>(layout.ranks)), layout_(layout) {}

  Mailbox& mailbox() const { return *reinterpret_cast<Mailbox*>(memory_); }
  ChannelMailbox& channel(int c) const {
    return *reinterpret_cast<ChannelMailbox*>(memory_ + channel_offset(c));
  }
  Part& part(int c, int slot, int rank) const {
    const size_t index = static_cast<size_t>(slot) * ranks_ + static_cast<size_t>(rank);
    return *reinterpret_cast<Part*>(memory_ + channel_offset(c) + sizeof(ChannelMailbox) +
                                    index * sizeof(Part));
  }
  // Returns the offset from the mailbox's beginning.
  size_t staging_offset(int c, int slot) const {
    const size_t index = static_cast<size_t>(c) * kSlots + static_cast<size_t>(slot);
    return round_up(channel_offset(kChannelsMax), kPage) + index * layout_.staging_bytes;
  }
  size_t bytes() const { return staging_offset(kChannelsMax, 0); }
  std::byte* memory() const { return memory_; }

 private:
  static constexpr size_t kPage = 4096;

  static constexpr size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
  }

  size_t channel_offset(int c) const {
    const size_t each = sizeof(ChannelMailbox) + kSlots * ranks_ * sizeof(Part);
    return sizeof(Mailbox) + static_cast<size_t>(c) * each;
  }

  std::byte* memory_;
  size_t ranks_;
  MailboxLayout layout_;
};

}  // namespace muster::trainer
