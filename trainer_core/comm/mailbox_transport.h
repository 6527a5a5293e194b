// The transport between ranks that can access each other's mailboxes (mailbox.h). Internal to comm:
// local.h and shm.h create it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trainer_core/comm/mailbox.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// The options of a MailboxTransport.
struct MailboxOptions {
  int rank = 0;                        // this rank in the world
  std::vector<int> ranks;              // world ranks with a mailbox, ascending, including this rank
  std::vector<MailboxView> mailboxes;  // the mailboxes of `ranks`, in the same order
  MailboxLayout layout;
  // Whether ranks are threads, which can read any memory of the sender. Otherwise outgoing data is
  // copied to staging buffers.
  bool threads = false;
  int world_size = 1;
  std::chrono::milliseconds timeout{};  // maximum duration of a round, before limit_rounds()
  // Returns whether the owner of mailbox `index` has ended without marking its mailbox. May be
  // empty. Must be thread-safe.
  std::function<bool(int index)> lost;
  std::shared_ptr<void> memory;  // owns the memory of the mailboxes
};

// A transport over mailboxes; Transport documents the methods.
class MailboxTransport : public Transport {
 public:
  explicit MailboxTransport(MailboxOptions options);
  ~MailboxTransport() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.world_size; }
  std::unique_ptr<Channel> open(std::string_view name, std::span<const int> members) override;
  void fail(const std::string& reason) override { leave(MailboxState::kFailed, reason); }
  void limit_rounds(std::chrono::milliseconds limit) override { timeout_ = limit; }

 private:
  friend class MailboxChannel;

  const MailboxView& view(int index) const {
    return options_.mailboxes[static_cast<size_t>(index)];
  }
  int world_rank(int index) const { return options_.ranks[static_cast<size_t>(index)]; }
  int index_of(int world_rank) const;

  // Marks this rank's mailbox as left or failed and wakes all peers. Peers that wait for this rank
  // return `reason` as their error; only the first call has an effect.
  void leave(MailboxState state, const std::string& reason);
  MailboxState state(int index) const { return view(index).mailbox().state.load(); }
  // Returns why no further message can arrive from a mailbox; empty if one can. `probe`: also calls
  // options_.lost, which needs a system call.
  std::string gone(int index, bool probe = true) const;
  // Returns the index of the channel `id` in a mailbox; -1 if its owner has not opened it yet.
  int find_channel(int index, uint64_t id) const;

  MailboxOptions options_;
  std::atomic<std::chrono::milliseconds> timeout_;
  int own_;  // index of this rank's mailbox
  bool spins_;
  std::mutex mutex_;  // guards channels_, and the memory that leave() writes
  int channels_ = 0;
};

}  // namespace muster::trainer
