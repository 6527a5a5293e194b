#include "trainer_core/comm/gloo_transport.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>

#include <absl/strings/str_cat.h>
#include <gloo/transport/pair.h>

#include "common/random/fnv.h"
#include "trainer_core/comm/rank_list.h"

namespace muster::trainer {
namespace {

using std::chrono::milliseconds;

// The time for which a failed round probes each other peer for a closed connection.
constexpr milliseconds kProbe{2};
// The maximum time for which a rank that leaves waits for the other ranks, which are in the same
// collective or about to fail.
constexpr milliseconds kGoodbye{2000};
// Bytes of one round, which bound a rank's copies of its peers' parts.
constexpr size_t kRoundBytes = size_t{8} << 20;
// Buffers that may be on a caller's stack are smaller than this.
constexpr size_t kInboxPartBytes = size_t{64} << 10;

bool is_timeout(const char* error) { return std::strstr(error, "Timed out") != nullptr; }

absl::Status lost(int rank, const std::exception& e) {
  return absl::UnavailableError(
      absl::StrCat("the connection to rank ", rank, " is lost: ", e.what()));
}

}  // namespace

GlooTransport::~GlooTransport() {
  if (!failed() && size() > 1) send_goodbye();
  fail("the transport is gone");
}

absl::Status GlooTransport::greet() { return exchange_with_all("greeting"); }

// Gloo's sockets do not linger: closing one discards data in transit, and a peer that is still
// receiving would wait until its timeout. A rank that has completed the goodbye exchange has
// received everything.
void GlooTransport::send_goodbye() {
  timeout_ = std::min(timeout_, kGoodbye);
  // A peer that is still working sends no goodbye, but it has not lost data either.
  (void)exchange_with_all("goodbye");
}

absl::Status GlooTransport::exchange_with_all(std::string_view name) {
  std::vector<int> all(static_cast<size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  const std::byte mine{};
  std::vector<std::byte> theirs(all.size());
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (const int peer : all) {
    if (peer == rank()) continue;
    out.push_back({peer, {&mine, 1}});
    in.push_back({peer, {&theirs[static_cast<size_t>(peer)], 1}});
  }
  return open(name, all)->exchange(out, in);
}

std::unique_ptr<Channel> GlooTransport::open(std::string_view name, std::span<const int> members) {
  std::string identity(name);
  for (const int member : members) absl::StrAppend(&identity, "/", member);
  auto channel = std::make_unique<GlooChannel>(*this, fnv1a(identity), members);
  const std::lock_guard lock(mutex_);
  channels_.insert(channel.get());
  return channel;
}

void GlooTransport::fail(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  reason_ = reason;
  failed_ = true;
  for (GlooChannel* channel : channels_) channel->abort();
  try {
    context_->closeConnections();
  } catch (const std::exception&) {
    // A connection that is already closed is not an error; the first failure is reported.
  }
}

absl::Status GlooTransport::failure() {
  const std::lock_guard lock(mutex_);
  return absl::UnavailableError(reason_);
}

GlooChannel::GlooChannel(GlooTransport& transport, uint64_t first_slot,
                         std::span<const int> members)
    : transport_(transport),
      first_slot_(first_slot),
      members_(members.begin(), members.end()),
      sent_(members.size()),
      received_(members.size()) {}

GlooChannel::~GlooChannel() {
  const std::lock_guard lock(transport_.mutex_);
  transport_.channels_.erase(this);
}

size_t GlooChannel::round_bytes_max(std::span<const int> /*members*/) const { return kRoundBytes; }

absl::Status GlooChannel::exchange(std::span<const Outgoing> out, std::span<const Incoming> in) {
  if (transport_.failed()) return transport_.failure();
  if (!broken_.ok()) return broken_;
  const std::vector<Incoming> memory = memory_for(in);
  absl::Status status = post(out, memory);
  if (status.ok()) status = wait_all(out, memory);
  if (!status.ok() && transport_.isolated()) {
    // The buffers of this round remain, because messages of the remaining peers still need them:
    // otherwise Gloo reads no later message.
    broken_ = status;
    return status;
  }
  if (!status.ok()) transport_.fail(std::string(status.message()));
  for (size_t i = 0; i < in.size() && status.ok(); ++i) {
    if (memory[i].bytes.data() != in[i].bytes.data())
      std::ranges::copy(memory[i].bytes, in[i].bytes.begin());
  }
  const std::lock_guard lock(mutex_);
  sends_.clear();
  receives_.clear();
  return status;
}

// Returns the memory that receives the parts. Gloo writes there as long as its buffer lives, which
// after a failure may be longer than the caller's memory. Small parts may be on a stack, so they
// are received in memory of the channel first; large ones are in the plan's memory.
std::vector<Incoming> GlooChannel::memory_for(std::span<const Incoming> in) {
  size_t bytes = 0;
  for (const Incoming& part : in)
    if (part.bytes.size() <= kInboxPartBytes) bytes += part.bytes.size();
  inbox_.resize(std::max(inbox_.size(), bytes));
  std::vector<Incoming> memory(in.begin(), in.end());
  size_t used = 0;
  for (Incoming& part : memory) {
    if (part.bytes.size() > kInboxPartBytes) continue;
    part.bytes = std::span(inbox_).subspan(used, part.bytes.size());
    used += part.bytes.size();
  }
  return memory;
}

absl::Status GlooChannel::exchange_combine(std::span<const Outgoing> out, std::span<const int> from,
                                           size_t bytes, Combine combine) {
  if (!broken_.ok()) return broken_;
  scratch_.resize(std::max(scratch_.size(), bytes * from.size()));
  std::vector<Incoming> in;
  std::vector<const std::byte*> parts;
  for (size_t i = 0; i < from.size(); ++i) {
    in.push_back({from[i], std::span(scratch_).subspan(i * bytes, bytes)});
    parts.push_back(in.back().bytes.data());
  }
  auto status = exchange(out, in);
  if (status.ok()) combine(parts);
  return status;
}

// Passes every part to Gloo, which returns an error if its connection is lost already.
absl::Status GlooChannel::post(std::span<const Outgoing> out, std::span<const Incoming> in) {
  gloo::Context& context = *transport_.context_;
  int member = -1;
  try {
    const std::lock_guard lock(mutex_);
    for (const Incoming& part : in) {
      member = part.from;
      receives_.push_back(context.createUnboundBuffer(part.bytes.data(), part.bytes.size()));
      receives_.back()->recv(rank_of(member),
                             first_slot_ + received_[static_cast<size_t>(member)]++);
    }
    for (const Outgoing& part : out) {
      member = part.to;
      auto* const data = const_cast<std::byte*>(part.bytes.data());  // Gloo reads it
      sends_.push_back(context.createUnboundBuffer(data, part.bytes.size()));
      sends_.back()->send(rank_of(member), first_slot_ + sent_[static_cast<size_t>(member)]++);
    }
  } catch (const std::exception& e) {
    // The channel's lock is released here, because failure() takes the lock of the transport, and
    // fail() takes that lock before those of channels.
    return transport_.failed() ? transport_.failure() : lost(rank_of(member), e);
  }
  return absl::OkStatus();
}

absl::Status GlooChannel::wait_all(std::span<const Outgoing> out, std::span<const Incoming> in) {
  size_t i = 0;
  try {
    for (; i < in.size(); ++i) {
      if (transport_.failed() || !receives_[i]->waitRecv(transport_.timeout_))
        return transport_.failure();
    }
  } catch (const std::exception& e) {
    return transport_.failed() ? transport_.failure() : explain_failure(in, i, e.what());
  }
  for (size_t k = 0; k < out.size(); ++k) {
    try {
      if (transport_.failed() || !sends_[k]->waitSend(transport_.timeout_))
        return transport_.failure();
    } catch (const std::exception& e) {
      return transport_.failed() ? transport_.failure() : lost(rank_of(out[k].to), e);
    }
  }
  return absl::OkStatus();
}

// Explains the failed wait for part `first`. A peer that fails because of a third one closes its
// connections as well, so all others are probed: the error names every closed connection, including
// that of the first rank that died.
absl::Status GlooChannel::explain_failure(std::span<const Incoming> in, size_t first,
                                          const char* error) {
  std::set<int> lost;
  std::set<int> silent;
  (is_timeout(error) ? silent : lost).insert(rank_of(in[first].from));
  for (size_t i = first + 1; i < in.size(); ++i) {
    try {
      if (!receives_[i]->waitRecv(kProbe)) return transport_.failure();
    } catch (const std::exception& e) {
      (is_timeout(e.what()) || is_timeout(error) ? silent : lost).insert(rank_of(in[i].from));
    }
  }
  if (!lost.empty()) {
    return absl::UnavailableError(absl::StrCat("the connection to ", rank_list(lost), " is lost"));
  }
  return absl::DeadlineExceededError(absl::StrCat("nothing came from ", rank_list(silent),
                                                  " within ", transport_.timeout_.count(), " ms"));
}

void GlooChannel::abort() {
  const std::lock_guard lock(mutex_);
  for (auto& buffer : receives_) buffer->abortWaitRecv();
  for (auto& buffer : sends_) buffer->abortWaitSend();
}

}  // namespace muster::trainer
