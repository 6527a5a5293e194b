#include "trainer_core/comm/mailbox_channel.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/check.h"
#include "trainer_core/comm/futex.h"
#include "trainer_core/comm/mailbox_transport.h"
#include "trainer_core/comm/rank_list.h"

namespace muster::trainer {
namespace {

// The interval at which a sleeping rank checks whether a peer was killed. A peer that leaves wakes
// it; a peer that is killed cannot.
constexpr Duration kPollInterval = std::chrono::milliseconds(20);
// The number of polls before the first sleep, some 10 µs: a peer that does the same computation
// usually arrives soon.
constexpr int kSpins = 500;
// The bytes of a round if peers read the sender's memory directly. The data that is read next
// should still be in a cache.
constexpr size_t kDirectRoundBytes = size_t{4} << 20;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

MailboxChannel::MailboxChannel(MailboxTransport& transport, int index, uint64_t id,
                               std::span<const int> members)
    : transport_(transport), index_(index), id_(id) {
  for (const int member : members) {
    all_.push_back(static_cast<int>(peers_.size()));
    peers_.push_back({.mailbox = transport_.index_of(member)});
  }
}

size_t MailboxChannel::round_bytes_max(std::span<const int> /*members*/) const {
  return transport_.options_.threads ? kDirectRoundBytes : transport_.options_.layout.staging_bytes;
}

absl::Status MailboxChannel::exchange(std::span<const Outgoing> out, std::span<const Incoming> in) {
  members_.clear();
  for (const Incoming& part : in) members_.push_back(part.from);
  absl::Status status = begin_round();
  if (status.ok()) status = post(out);
  if (status.ok()) status = await_posted();
  for (size_t i = 0; i < in.size() && status.ok(); ++i) {
    const std::span<std::byte> bytes = in[i].bytes;
    status = claim(in[i].from, *parts_[i], bytes.size());
    if (!status.ok()) break;
    std::memcpy(bytes.data(), bytes_of(peer(in[i].from), *parts_[i]), bytes.size());
    taken(in[i].from, *parts_[i]);
  }
  return end_round(std::move(status));
}

absl::Status MailboxChannel::exchange_combine(std::span<const Outgoing> out,
                                              std::span<const int> from, size_t bytes,
                                              Combine combine) {
  members_.assign(from.begin(), from.end());
  absl::Status status = begin_round();
  if (status.ok()) status = post(out);
  if (status.ok()) status = await_posted();
  contributions_.clear();
  for (size_t i = 0; i < from.size() && status.ok(); ++i) {
    status = claim(from[i], *parts_[i], bytes);
    if (status.ok()) contributions_.push_back(bytes_of(peer(from[i]), *parts_[i]));
  }
  if (status.ok()) combine(contributions_);
  for (size_t i = 0; i < contributions_.size(); ++i) taken(from[i], *parts_[i]);
  return end_round(std::move(status));
}

absl::Status MailboxChannel::begin_round() {
  if (!broken_.ok()) return broken_;
  if (transport_.state(transport_.own_) != MailboxState::kHere)
    return absl::UnavailableError(transport_.gone(transport_.own_));
  deadline_ = monotonic_now() + transport_.timeout_.load();
  peers_read_buffers_ = false;
  return absl::OkStatus();
}

Part& MailboxChannel::own_part(int slot, const Peer& to) const {
  return transport_.view(transport_.own_).part(index_, slot, to.mailbox);
}

absl::Status MailboxChannel::post(std::span<const Outgoing> out) {
  if (out.empty()) return absl::OkStatus();
  if (auto status = await_consumed(slot_); !status.ok()) return status;
  const MailboxView& own = transport_.view(transport_.own_);
  size_t staged = own.staging_offset(index_, slot_);
  const size_t end = staged + transport_.options_.layout.staging_bytes;
  std::span<const std::byte> last;
  uint64_t where = 0;
  for (const Outgoing& message : out) {
    const bool again = message.bytes.data() == last.data() && message.bytes.size() == last.size();
    if (transport_.options_.threads) {
      where = reinterpret_cast<uint64_t>(message.bytes.data()) -
              reinterpret_cast<uint64_t>(own.memory());
      peers_read_buffers_ = true;
    } else if (!again) {
      MUSTER_CHECK(staged + message.bytes.size() <= end) << "a round of too many bytes";
      std::memcpy(own.memory() + staged, message.bytes.data(), message.bytes.size());
      where = staged;
      staged += message.bytes.size();
    }
    last = message.bytes;
    Peer& to = peer(message.to);
    Part& part = own_part(slot_, to);
    part.where = where;
    part.bytes = message.bytes.size();
    part.state.store(PartState::kPosted);
    part.number.store(++to.sent);
    wake(to);
  }
  slot_ = (slot_ + 1) % kSlots;
  return absl::OkStatus();
}

absl::Status MailboxChannel::await_consumed(int slot) {
  const auto is_taken = [&](Peer& to) {
    const PartState state = own_part(slot, to).state.load();
    return state == PartState::kFree || state == PartState::kTaken;
  };
  return wait_for(all_, is_taken, "nothing was taken by");
}

absl::Status MailboxChannel::await_posted() {
  const auto is_posted = [&](Peer& from) { return posted_by(from) != nullptr; };
  if (auto status = wait_for(members_, is_posted, "nothing came from"); !status.ok()) return status;
  parts_.clear();
  for (const int member : members_) parts_.push_back(posted_by(peer(member)));
  return absl::OkStatus();
}

Part* MailboxChannel::posted_by(Peer& from) {
  if (from.channel < 0) from.channel = transport_.find_channel(from.mailbox, id_);
  if (from.channel < 0) return nullptr;
  const MailboxView& theirs = transport_.view(from.mailbox);
  for (int slot = 0; slot < kSlots; ++slot) {
    Part& part = theirs.part(from.channel, slot, transport_.own_);
    if (part.number.load() == from.received + 1) return &part;
  }
  return nullptr;
}

absl::Status MailboxChannel::claim(int member, Part& part, size_t bytes) {
  Peer& from = peer(member);
  PartState posted = PartState::kPosted;
  if (!part.state.compare_exchange_strong(posted, PartState::kReading)) return revoked(from);
  MUSTER_CHECK(part.bytes == bytes)
      << "rank " << transport_.world_rank(from.mailbox) << " sent " << part.bytes << " bytes, "
      << bytes << " were expected: ranks are in different collectives";
  ++from.received;
  return absl::OkStatus();
}

// Returns the address of a message. Threads share an address space, so part.where may point outside
// the mailbox; the sum then wraps around to the sender's address.
const std::byte* MailboxChannel::bytes_of(const Peer& from, const Part& part) const {
  const std::byte* const mailbox = transport_.view(from.mailbox).memory();
  // NOLINTNEXTLINE(performance-no-int-to-ptr): it is another object's address, which pointers
  // cannot be made to reach.
  return reinterpret_cast<const std::byte*>(reinterpret_cast<uint64_t>(mailbox) + part.where);
}

void MailboxChannel::taken(int member, Part& part) {
  part.state.store(PartState::kTaken);
  wake(peer(member));
}

// All loads and stores of awaited, bell, number, state and id are sequentially consistent: either a
// rank sees the message for which it waits, or the peer sees the rank's bit.
void MailboxChannel::wake(Peer& peer) {
  if (peer.channel < 0) peer.channel = transport_.find_channel(peer.mailbox, id_);
  if (peer.channel < 0) return;  // the peer checks this message before it sleeps
  ChannelArea& channel = transport_.view(peer.mailbox).channel(peer.channel);
  const uint64_t own = mailbox_bit(transport_.own_);
  if ((channel.awaited.load() & own) == 0) return;
  if (channel.awaited.fetch_and(~own) != own) return;  // others are awaited, too
  channel.bell.fetch_add(1);
  futex_wake(channel.bell);
}

bool MailboxChannel::announce(std::span<const int> members, absl::FunctionRef<bool(Peer&)> ready) {
  missing_.clear();
  uint64_t bits = 0;
  for (const int member : members) {
    if (ready(peer(member))) continue;
    missing_.push_back(member);
    bits |= mailbox_bit(peer(member).mailbox);
  }
  std::atomic<uint64_t>& awaited = transport_.view(transport_.own_).channel(index_).awaited;
  awaited.store(bits);
  for (const int member : missing_) {  // a peer that arrived earlier could see this rank's bit
    if (ready(peer(member))) awaited.fetch_and(~mailbox_bit(peer(member).mailbox));
  }
  return awaited.load() != 0;
}

absl::Status MailboxChannel::wait_for(std::span<const int> members,
                                      absl::FunctionRef<bool(Peer&)> ready, std::string_view what) {
  const auto all_ready = [&] {
    return std::all_of(members.begin(), members.end(), [&](int m) { return ready(peer(m)); });
  };
  for (int i = 0; i < (transport_.spins_ ? kSpins : 1); ++i) {
    if (all_ready()) return absl::OkStatus();
    relax();
  }
  const ChannelArea& own = transport_.view(transport_.own_).channel(index_);
  for (bool probe = false;; probe = true) {
    const uint32_t seen = own.bell.load();
    const bool sleepy = announce(members, ready);
    const absl::Status status = check_peers(members, ready, probe);
    if (all_ready()) return absl::OkStatus();  // even if a peer has failed since
    if (!status.ok()) return status;
    const Duration rest = deadline_ - monotonic_now();
    if (rest <= Duration::zero()) return late(what, missing_);
    if (sleepy) futex_wait(own.bell, seen, std::min(rest, kPollInterval));
  }
}

absl::Status MailboxChannel::check_peers(std::span<const int> members,
                                         absl::FunctionRef<bool(Peer&)> ready, bool probe) {
  if (transport_.state(transport_.own_) != MailboxState::kHere)
    return absl::UnavailableError(transport_.gone(transport_.own_));
  for (const int member : members) {
    Peer& other = peer(member);
    const MailboxState state = transport_.state(other.mailbox);
    const std::string gone = transport_.gone(other.mailbox, probe);
    if (gone.empty() || (state != MailboxState::kFailed && ready(other))) continue;
    return absl::UnavailableError(gone);
  }
  return absl::OkStatus();
}

absl::Status MailboxChannel::late(std::string_view what, std::span<const int> silent) {
  std::vector<int> world_ranks;
  for (const int member : silent)
    world_ranks.push_back(transport_.world_rank(peer(member).mailbox));
  const std::string ranks = rank_list(world_ranks);
  const std::string wait = absl::StrCat(transport_.timeout_.load().count(), " ms");
  give_up(
      absl::StrCat("rank ", transport_.rank(), " gave up after ", wait, " waiting for ", ranks));
  return absl::DeadlineExceededError(absl::StrCat(av(what), " ", ranks, " within ", wait));
}

absl::Status MailboxChannel::end_round(absl::Status status) {
  for (int slot = 0; slot < kSlots && status.ok() && peers_read_buffers_; ++slot)
    status = await_consumed(slot);
  if (status.ok()) return status;
  give_up(std::string(status.message()));  // peers report the same cause
  // Between processes the posted messages of an isolated rank remain valid: a peer that is still in
  // an earlier round can take them, as it could if this rank had ended. Peers that wait for further
  // messages notice the end of this rank.
  if (transport_.options_.threads || !transport_.isolated()) revoke();
  if (transport_.isolated()) broken_ = status;
  return status;
}

void MailboxChannel::give_up(const std::string& reason) {
  if (!transport_.isolated()) transport_.fail(reason);
}

// Returns the error for a message that `by` has revoked, because it is gone or about to leave.
absl::Status MailboxChannel::revoked(const Peer& by) const {
  const std::string gone = transport_.gone(by.mailbox);
  if (!gone.empty()) return absl::UnavailableError(gone);
  return absl::UnavailableError(
      absl::StrCat("rank ", transport_.world_rank(by.mailbox), " is about to leave"));
}

void MailboxChannel::revoke() {
  for (int slot = 0; slot < kSlots; ++slot) {
    for (const Peer& to : peers_) {
      Part& part = own_part(slot, to);
      PartState posted = PartState::kPosted;
      part.state.compare_exchange_strong(posted, PartState::kRevoked);
      // This loop ends soon, because a peer that reads does not wait. Between processes the memory
      // remains mapped.
      while (transport_.options_.threads && part.state.load() == PartState::kReading)
        std::this_thread::yield();
    }
  }
}

}  // namespace muster::trainer
