#include "trainer_core/comm/mailbox_transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/process/usable_cpus.h"
#include "common/random/fnv.h"
#include "common/text/absl_view.h"
#include "trainer_core/base/check.h"
#include "trainer_core/comm/futex.h"
#include "trainer_core/comm/mailbox_channel.h"

namespace muster::trainer {
namespace {

// Returns the id of a channel: a hash that is never 0, which marks an unused channel. open()
// detects two groups of a rank with the same hash.
uint64_t channel_id(std::string_view name, std::span<const int> members) {
  std::string identity(name);
  for (const int member : members) absl::StrAppend(&identity, "/", member);
  return fnv1a(identity) | 1;
}

}  // namespace

MailboxTransport::MailboxTransport(MailboxOptions options)
    : options_(std::move(options)), timeout_(options_.timeout) {
  own_ = index_of(options_.rank);
  // If there are more ranks than cores, a rank that polls would prevent the ranks for which it
  // waits from running.
  spins_ = options_.ranks.size() <= static_cast<size_t>(usable_cpus());
}

MailboxTransport::~MailboxTransport() {
  leave(MailboxState::kLeft, absl::StrCat("rank ", options_.rank, " is gone"));
}

int MailboxTransport::index_of(int world_rank) const {
  const auto found = std::find(options_.ranks.begin(), options_.ranks.end(), world_rank);
  MUSTER_CHECK(found != options_.ranks.end()) << "rank " << world_rank << " has no mailbox here";
  return static_cast<int>(found - options_.ranks.begin());
}

std::unique_ptr<Channel> MailboxTransport::open(std::string_view name,
                                                std::span<const int> members) {
  const uint64_t id = channel_id(name, members);
  const std::lock_guard lock(mutex_);
  MUSTER_CHECK(find_channel(own_, id) < 0) << "group \"" << name << "\" is there already";
  MUSTER_CHECK(channels_ < kChannelsMax) << "more than " << kChannelsMax << " groups";
  view(own_).channel(channels_).id.store(id);
  return std::make_unique<MailboxChannel>(*this, channels_++, id, members);
}

void MailboxTransport::leave(MailboxState state, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  Mailbox& mailbox = view(own_).mailbox();
  if (mailbox.state.load() != MailboxState::kHere) return;
  std::strncpy(mailbox.reason.data(), reason.c_str(), mailbox.reason.size() - 1);
  mailbox.state.store(state);
  for (const MailboxView& peer : options_.mailboxes) {
    for (int c = 0; c < kChannelsMax && peer.channel(c).id.load() != 0; ++c) {
      peer.channel(c).bell.fetch_add(1);
      futex_wake(peer.channel(c).bell);
    }
  }
}

std::string MailboxTransport::gone(int index, bool probe) const {
  if (state(index) != MailboxState::kHere) return view(index).mailbox().reason.data();
  if (probe && options_.lost && options_.lost(index))
    return absl::StrCat("rank ", world_rank(index), " died");
  return "";
}

int MailboxTransport::find_channel(int index, uint64_t id) const {
  for (int c = 0; c < kChannelsMax; ++c) {
    const uint64_t found = view(index).channel(c).id.load();
    if (found == id) return c;
    if (found == 0) break;  // channels are opened in order
  }
  return -1;
}

}  // namespace muster::trainer
