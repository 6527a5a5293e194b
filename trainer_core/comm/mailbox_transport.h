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

struct MailboxOptions {
  int rank = 0;            // in the world
  std::vector<int> ranks;  // world ranks that have mailboxes here, ascending, this one among them
  std::vector<MailboxView> mailboxes;  // theirs, in that order
  MailboxLayout layout;
  // Whether peers can read any memory of the sender. Otherwise outgoing data is copied into
  // staging.
  bool threads = false;
  int world_size = 1;
  std::chrono::milliseconds timeout{};  // per round
  // Returns whether the owner of mailbox `index` died without marking its mailbox. May be empty.
  // Any thread.
  std::function<bool(int index)> lost;
  std::shared_ptr<void> memory;  // keeps the mailboxes alive
};

class MailboxTransport : public Transport {
 public:
  explicit MailboxTransport(MailboxOptions options);
  ~MailboxTransport() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.world_size; }
  std::unique_ptr<Channel> open(std::string_view name, std::span<const int> members) override;
  void fail(const std::string& reason) override { leave(MailboxState::kFailed, reason); }

 private:
  friend class MailboxChannel;

  const MailboxView& view(int index) const {
    return options_.mailboxes[static_cast<size_t>(index)];
  }
  int world_rank(int index) const { return options_.ranks[static_cast<size_t>(index)]; }
  int index_of(int world_rank) const;

  // Ends this rank's participation. The first reason counts; waiting peers receive it as their
  // error.
  void leave(MailboxState state, const std::string& reason);
  MailboxState state(int index) const { return view(index).mailbox().state.load(); }
  // Returns why nothing more will arrive from a mailbox; empty if something may. `look`: also calls
  // options_.lost, which is a system call.
  std::string gone(int index, bool probe = true) const;
  // Returns -1 if the channel has not been opened yet.
  int find_channel(int index, uint64_t id) const;

  MailboxOptions options_;
  int own_;  // index of this rank's mailbox
  bool spins_;
  std::mutex mutex_;  // guards what follows, and what leave() writes
  int channels_ = 0;
};

}  // namespace muster::trainer
