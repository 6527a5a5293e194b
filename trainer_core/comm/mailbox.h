// The memory through which ranks that see each other's memory pass messages: threads of one process (`local`), or processes of
// one host (`shm`). Internal to comm.
//
// Each rank has a mailbox, which all ranks can read and write. A message lies on its sender's mailbox, in a part for its receiver, until
// the receiver has taken it:
//
//                    sender                         receiver
//   kFree ──▶ where, bytes, number = n ──▶ kPosted ──▶ kReading ──▶ kTaken (as good as kFree)
//                                            └──▶ kRevoked: the sender gave up, and its memory may go away
//
// A mailbox (offsets follow from the number of ranks):
//   Mailbox                       state, reason
//   ChannelMailbox[kChannelsMax]  id, bell, awaited; each followed by kLanes lanes of one Part for each rank
//   staging                    kChannelsMax x kLanes pieces of `staging_bytes`, where processes put what they send; threads send from
//                              anywhere
//
// Sleeping: a rank writes a bit for each peer that it waits for into `awaited` and sleeps on its channel's `bell`. A peer that
// posts or takes clears its bit, and the last one rings: a round costs one wake-up and not one for each peer, which with more
// ranks than cores is most of a small round. Who leaves rings all bells.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace muster::trainer {

constexpr int kChannelsMax =
    64;  // of a rank: the groups of a mesh are some ten, on a few lanes each
constexpr int kLanes =
    2;  // rounds of a channel that may be under way: one is read while the next is written

enum class PartState : uint32_t { kFree, kPosted, kReading, kTaken, kRevoked };

struct alignas(64) Part {
  std::atomic<uint64_t>
      number;  // of the message among those from this sender to this receiver, from 1
  std::atomic<PartState> state;
  uint64_t where;  // from the beginning of the sender's mailbox
  uint64_t bytes;
};

struct alignas(64) ChannelMailbox {
  std::atomic<uint64_t> id;  // 0: nobody's
  std::atomic<uint64_t>
      awaited;  // bits of mailboxes (mailbox_bit); two mailboxes may share one, who then wakes a sleeper too early
  std::atomic<uint32_t> bell;
};
constexpr uint64_t mailbox_bit(int mailbox) {
  return uint64_t{1} << (static_cast<unsigned>(mailbox) % 64);
}

// kLeft: at its end; what it has sent counts. kFailed: whoever has a round with it fails, too.
enum class MailboxState : uint32_t { kHere, kLeft, kFailed };

struct alignas(64) Mailbox {
  std::atomic<MailboxState> state;
  std::array<char, 252> reason;  // written before the state changes: "rank 3 is gone"
};

// The same for all mailboxes of a transport.
struct MailboxLayout {
  int ranks = 1;
  size_t staging_bytes = 0;
};

// A view of one rank's mailbox. Owns nothing. Memory that is all zero is a mailbox on which nothing lies.
class MailboxView {
 public:
  MailboxView(std::byte* memory, const MailboxLayout& layout)
      : memory_(memory), ranks_(static_cast<size_t>(layout.ranks)), layout_(layout) {}

  Mailbox& mailbox() const { return *reinterpret_cast<Mailbox*>(memory_); }
  ChannelMailbox& channel(int c) const {
    return *reinterpret_cast<ChannelMailbox*>(memory_ + channel_offset(c));
  }
  Part& part(int c, int lane, int rank) const {
    const size_t index = static_cast<size_t>(lane) * ranks_ + static_cast<size_t>(rank);
    return *reinterpret_cast<Part*>(memory_ + channel_offset(c) + sizeof(ChannelMailbox) +
                                    index * sizeof(Part));
  }
  // From the mailbox's beginning.
  size_t staging_offset(int c, int lane) const {
    const size_t index = static_cast<size_t>(c) * kLanes + static_cast<size_t>(lane);
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
    const size_t each = sizeof(ChannelMailbox) + kLanes * ranks_ * sizeof(Part);
    return sizeof(Mailbox) + static_cast<size_t>(c) * each;
  }

  std::byte* memory_;
  size_t ranks_;
  MailboxLayout layout_;
};

}  // namespace muster::trainer
