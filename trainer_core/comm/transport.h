// What collectives are made of: rounds of messages between pairs of the world's ranks. A transport is one rank's end of the
// world; connections are made once, by whoever makes it. Implementations: `local` (ranks are threads), `shm` (processes of one
// host), `gloo` (processes over TCP).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

namespace muster::trainer {

// Parts of a round; `to` and `from` count members of the channel. Each has a byte at least, and a round has one part to a
// member and one from it at most.
struct Outgoing {
  int to;
  std::span<const std::byte> bytes;
};
struct Incoming {
  int from;
  std::span<std::byte> bytes;
};

// Gets the parts of a round where they lie, in the order in which they were asked for.
using Combine = absl::FunctionRef<void(std::span<const std::byte* const> parts)>;

// What the members of one group exchange. Messages between two members arrive in the order in which they were sent, and meet those
// of no other channel. One thread at a time; other channels' threads do not disturb it. Its transport outlives it.
//
// Errors: Unavailable when a peer of the round is gone or abort() was called, DeadlineExceeded when nothing comes from a peer in
// time; both name world ranks. Afterwards every channel of the transport is of no more use, and the peers learn of it at once; or this
// channel alone, see isolate_channels().
class Channel {
 public:
  virtual ~Channel() = default;

  // The most that a round among some members, this one among them, sends: the same number for each of them. Parts with the same
  // bytes (one piece of memory sent to several peers) count once.
  virtual size_t round_bytes_max(std::span<const int> members) const = 0;

  // Sends and receives all parts. Returns when `in` is filled and the memory of `out` may be changed.
  virtual absl::Status exchange(std::span<const Outgoing> out, std::span<const Incoming> in) = 0;

  // Sends `out`, waits for `bytes` bytes from each of `from`, and calls `combine` once with them. `combine` may write to memory of
  // this rank that the round does not send.
  virtual absl::Status exchange_combine(std::span<const Outgoing> out, std::span<const int> from,
                                        size_t bytes, Combine combine) = 0;
};

// Any thread. A transport that is destroyed has left: a peer that waits for it gets Unavailable.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;  // in the world
  virtual int size() const = 0;

  // The end of a channel between `members` (world ranks, this one among them), without a message: a peer's end may be opened
  // later. `name` with the members is the channel's identity; each rank opens it once.
  virtual std::unique_ptr<Channel> open(std::string_view name, std::span<const int> members) = 0;

  // Makes the current and every later round of this rank fail with Unavailable for `reason`, which peers are told if there is a
  // way to tell them; they fail, too. Only the first reason counts.
  virtual void fail(const std::string& reason) = 0;
  void abort();

  // From now on a round of this rank that fails ends its own channel alone, and peers are not told. For a rank that is about to leave:
  // its last words go through channels whose members are there, whatever becomes of the others. fail() and abort() end all as before.
  virtual void isolate_channels() { isolated_ = true; }
  bool isolated() const { return isolated_; }

 private:
  std::atomic<bool> isolated_{false};
};

}  // namespace muster::trainer
