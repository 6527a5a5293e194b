// The layer below collectives: rounds of messages between pairs of ranks of the world. A transport
// is one rank's end of the connections, which exist when it is created. There are three
// implementations: `local` (ranks are threads), `shm` (processes of one host) and `gloo` (processes
// over TCP).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

namespace muster::trainer {

// The default time that a round waits for a peer that sends nothing. It only ends jobs that nothing
// monitors: a peer that is gone is noticed at once, and the worker finds a peer that hangs by
// comparing progress pages. The timeout is long because a rank may legitimately wait while a peer
// does work of its own, such as passes of an earlier stage or a save.
constexpr std::chrono::milliseconds kRoundTimeout = std::chrono::hours(24);

// The parts of a round: data to a member, and memory for data from a member. `to` and `from` are
// indices of members of the channel. A part has at least one byte. A round has at most one part to
// each member and one from each member.
struct Outgoing {
  int to;
  std::span<const std::byte> bytes;
};
struct Incoming {
  int from;
  std::span<std::byte> bytes;
};

// Receives the data of a round, in the order in which it was requested. The pointers are to memory
// of the transport.
using Combine = absl::FunctionRef<void(std::span<const std::byte* const> parts)>;

// Connects the members of a group. Messages between two members arrive in the order in which they
// were sent, and are separate from those of other channels. A channel is used by one thread at a
// time; different channels are independent. The transport must outlive its channels.
//
// Rounds return Unavailable if a peer of the round is gone or abort() was called, and
// DeadlineExceeded if a peer sends nothing in time; both messages contain world ranks. Afterwards
// every channel of the transport is unusable and peers fail at once; after isolate_channels(), only
// this channel is unusable.
class Channel {
 public:
  virtual ~Channel() = default;

  // Returns the maximum number of bytes that a rank may send in a round among `members`, which
  // include this rank. All of them get the same value. Memory that is sent to several peers counts
  // once.
  virtual size_t round_bytes_max(std::span<const int> members) const = 0;

  // Sends and receives all parts. Blocks until `in` is filled and the memory of `out` may be
  // reused.
  virtual absl::Status exchange(std::span<const Outgoing> out, std::span<const Incoming> in) = 0;

  // Sends `out`, receives `bytes` bytes from each member of `from`, and calls `combine` once with
  // the received data. `combine` may write to any memory of this rank that the round does not send.
  virtual absl::Status exchange_combine(std::span<const Outgoing> out, std::span<const int> from,
                                        size_t bytes, Combine combine) = 0;
};

// One rank's end of the world. Thread-safe. A rank leaves the world when its transport is
// destroyed; a peer that waits for it then gets Unavailable.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;  // in the world
  virtual int size() const = 0;

  // Returns this rank's end of a channel between `members`, which are world ranks and include this
  // rank. Sends no message, so a peer may open its end later. `name` and `members` identify the
  // channel; each rank opens it once.
  virtual std::unique_ptr<Channel> open(std::string_view name, std::span<const int> members) = 0;

  // Makes the current round and every later round of this rank fail with Unavailable and `reason`.
  // Peers fail, too, with the same reason if the transport can deliver it. Only the first call has
  // an effect.
  virtual void fail(const std::string& reason) = 0;
  // Calls fail() with the reason that this rank was aborted.
  void abort();

  // Sets the time that later rounds of this rank wait for a peer. Transports between several hosts
  // ignore it.
  virtual void limit_rounds(std::chrono::milliseconds /*limit*/) {}

  // Makes a failed round of this rank end only its own channel from now on, without notifying
  // peers. A rank that is about to leave uses this, so that its last messages succeed on channels
  // whose members are still present, even if other channels fail. fail() and abort() still end all
  // channels.
  virtual void isolate_channels() { isolated_ = true; }
  bool isolated() const { return isolated_; }

 private:
  std::atomic<bool> isolated_{false};
};

}  // namespace muster::trainer
