// The layer below collectives: rounds of messages between pairs of the world's ranks. A transport
// is one rank's end of the world; its creator makes the connections once. Implementations: `local`
// (ranks are threads), `shm` (processes of one host), `gloo` (processes over TCP).
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

// Default time that a round waits for a silent peer. A peer that is gone is noticed at once,
// whatever the timeout; the comparison of progress pages finds a peer that hangs. A rank may
// legitimately wait as long as a peer has work that it does not have (passes of earlier stages, a
// save), so no number of minutes proves a fault. This timeout only ends jobs that nothing monitors.
constexpr std::chrono::milliseconds kRoundTimeout = std::chrono::hours(24);

// Parts of a round; `to` and `from` are indices of the channel's members. A part has at least one
// byte. A round has at most one part to each member and one from it.
struct Outgoing {
  int to;
  std::span<const std::byte> bytes;
};
struct Incoming {
  int from;
  std::span<std::byte> bytes;
};

// Receives the parts of a round in their transport memory, in the order in which they were
// requested.
using Combine = absl::FunctionRef<void(std::span<const std::byte* const> parts)>;

// Connects the members of one group. Messages between two members arrive in the order in which they
// were sent, and never mix with other channels' messages. One thread at a time per channel;
// channels are independent of each other. The transport must outlive its channels.
//
// Errors: Unavailable when a peer of the round is gone or abort() was called, DeadlineExceeded when
// a peer sends nothing in time; both name world ranks. Afterwards every channel of the transport is
// unusable and its peers fail at once, or only this channel; see isolate_channels().
class Channel {
 public:
  virtual ~Channel() = default;

  // Returns the maximum of bytes that a round among `members`, which include this rank, sends; all
  // of them get the same value. Parts with the same bytes (one piece of memory sent to several
  // peers) count once.
  virtual size_t round_bytes_max(std::span<const int> members) const = 0;

  // Sends and receives all parts. Returns when `in` is filled and the memory of `out` may be
  // reused.
  virtual absl::Status exchange(std::span<const Outgoing> out, std::span<const Incoming> in) = 0;

  // Sends `out`, waits for `bytes` bytes from each of `from`, and calls `combine` once with them.
  // `combine` may write to memory of this rank that the round does not send.
  virtual absl::Status exchange_combine(std::span<const Outgoing> out, std::span<const int> from,
                                        size_t bytes, Combine combine) = 0;
};

// Thread-safe. Destroying a transport leaves the world: a peer that waits for it gets Unavailable.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;  // in the world
  virtual int size() const = 0;

  // Returns this rank's end of a channel between `members` (world ranks, including this one). Sends
  // no message: a peer may open its end later. `name` and `members` identify the channel; each rank
  // opens it once.
  virtual std::unique_ptr<Channel> open(std::string_view name, std::span<const int> members) = 0;

  // Makes the current and every later round of this rank fail with Unavailable for `reason`. Peers
  // also fail, with that reason if the transport can deliver it. Only the first reason counts.
  virtual void fail(const std::string& reason) = 0;
  void abort();

  // From now on a failed round of this rank ends only its own channel, without notifying peers.
  // Used by a rank that is about to leave: its final messages use channels whose members are still
  // present, whatever happens to the others. fail() and abort() still end all channels.
  virtual void isolate_channels() { isolated_ = true; }
  bool isolated() const { return isolated_; }

 private:
  std::atomic<bool> isolated_{false};
};

}  // namespace muster::trainer
