#include "trainer_core/comm/local.h"

#include <cstring>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "trainer_core/base/check.h"
#include "trainer_core/comm/mailbox_transport.h"
#include "trainer_core/comm/transport_group.h"

namespace muster::trainer {
namespace {

constexpr std::align_val_t kAlignment{alignof(Mailbox)};

MailboxView mailbox_of(std::byte* memory, int rank, int size) {
  const MailboxLayout layout{.ranks = size};
  return {memory + static_cast<size_t>(rank) * MailboxView(nullptr, layout).bytes(), layout};
}

}  // namespace

LocalWorld::LocalWorld(int size, std::chrono::milliseconds timeout)
    : size_(size), timeout_(timeout) {
  MUSTER_CHECK(size >= 1) << "a world of " << size;
  const size_t bytes = static_cast<size_t>(size) * MailboxView(nullptr, {.ranks = size}).bytes();
  memory_ = {static_cast<std::byte*>(::operator new(bytes, kAlignment)),
             [](std::byte* memory) { ::operator delete(memory, kAlignment); }};
  std::memset(memory_.get(), 0, bytes);
}

std::shared_ptr<Transport> LocalWorld::join(int rank) const {
  MUSTER_CHECK(rank >= 0 && rank < size_) << "rank " << rank << " of " << size_;
  MailboxOptions options;
  options.rank = rank;
  options.world_size = size_;
  options.layout.ranks = size_;
  options.threads = true;
  options.timeout = timeout_;
  options.memory = memory_;
  options.ranks.resize(static_cast<size_t>(size_));
  std::iota(options.ranks.begin(), options.ranks.end(), 0);
  for (const int peer : options.ranks)
    options.mailboxes.push_back(mailbox_of(memory_.get(), peer, size_));
  return std::make_shared<MailboxTransport>(std::move(options));
}

std::unique_ptr<ProcessGroup> LocalWorld::join(int rank, ProgressWriter* page,
                                               std::string name) const {
  return make_world_group(join(rank), std::move(name), page);
}

}  // namespace muster::trainer
