// A transport over a Gloo context, which gloo.cc creates. Internal to comm.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include "trainer_core/comm/transport.h"

namespace muster::trainer {

class GlooTransport;

// A channel over Gloo; Channel documents the methods.
class GlooChannel : public Channel {
 public:
  // `first_slot` is the first of the Gloo slots that this channel's messages use.
  GlooChannel(GlooTransport& transport, uint64_t first_slot, std::span<const int> members);
  ~GlooChannel() override;

  size_t round_bytes_max(std::span<const int> members) const override;
  absl::Status exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override;
  absl::Status exchange_combine(std::span<const Outgoing> out, std::span<const int> from,
                                size_t bytes, Combine combine) override;
  // Ends the waits of the current round. Thread-safe.
  void abort();

 private:
  using Buffers = std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>>;

  std::vector<Incoming> memory_for(std::span<const Incoming> in);
  absl::Status post(std::span<const Outgoing> out, std::span<const Incoming> in);
  absl::Status wait_all(std::span<const Outgoing> out, std::span<const Incoming> in);
  absl::Status explain_failure(std::span<const Incoming> in, size_t first, const char* error);
  int rank_of(int member) const { return members_[static_cast<size_t>(member)]; }

  GlooTransport& transport_;
  uint64_t first_slot_;
  std::vector<int> members_;
  std::vector<uint64_t> sent_;      // number of messages sent to each member
  std::vector<uint64_t> received_;  // number of messages received from each member
  std::vector<std::byte> scratch_;  // the peers' data that is being combined
  std::vector<std::byte> inbox_;    // memory into which small parts are received
  // The first failure of this channel after isolate_channels() (transport.h); OK: none.
  absl::Status broken_;
  std::mutex mutex_;  // guards the two lists, which abort() also reads
  Buffers sends_;
  Buffers receives_;
};

// A transport over Gloo; Transport documents the methods.
class GlooTransport : public Transport {
 public:
  GlooTransport(std::shared_ptr<gloo::Context> context, std::chrono::milliseconds timeout)
      : context_(std::move(context)), timeout_(timeout) {}
  ~GlooTransport() override;

  // Waits for a message of every other rank, which proves that its Gloo has accepted the connection
  // to this rank. Gloo ends the process of a rank whose peer resets a connection before that.
  // Called once, before the first channel is opened.
  absl::Status greet();
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  std::unique_ptr<Channel> open(std::string_view name, std::span<const int> members) override;
  // Closes every connection, so that peers notice the failure at once instead of after their
  // timeout. Gloo cannot transmit the reason.
  void fail(const std::string& reason) override;

 private:
  friend class GlooChannel;

  void send_goodbye();
  // Sends one byte to every other rank and receives one from it.
  absl::Status exchange_with_all(std::string_view name);
  bool failed() const { return failed_; }
  absl::Status failure();

  std::shared_ptr<gloo::Context> context_;
  std::chrono::milliseconds timeout_;
  std::atomic<bool> failed_{false};
  std::mutex mutex_;  // guards the members below
  std::string reason_;
  std::set<GlooChannel*> channels_;
};

}  // namespace muster::trainer
