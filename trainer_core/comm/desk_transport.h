// The transport between ranks that see each other's desks (desk.h). Internal to comm: local.h and shm.h make it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trainer_core/comm/desk.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

struct DeskOptions {
  int rank = 0;                 // in the world
  std::vector<int> ranks;       // world ranks that have desks here, ascending, this one among them
  std::vector<DeskView> desks;  // theirs, in that order
  DeskLayout layout;
  // Peers can read any memory of the sender; else what a round sends is copied into staging.
  bool threads = false;
  int world_size = 1;
  std::chrono::milliseconds timeout{};  // of one round
  // Whether the owner of desk `index` can no more say itself that it is gone. May be empty. Any thread.
  std::function<bool(int index)> lost;
  std::shared_ptr<void> memory;  // keeps the desks alive
};

class DeskTransport : public Transport {
 public:
  explicit DeskTransport(DeskOptions options);
  ~DeskTransport() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.world_size; }
  std::unique_ptr<Channel> open(std::string_view name, std::span<const int> members) override;
  void fail(const std::string& reason) override { leave(DeskState::kFailed, reason); }

 private:
  friend class DeskChannel;

  const DeskView& view(int index) const { return options_.desks[static_cast<size_t>(index)]; }
  int world_rank(int index) const { return options_.ranks[static_cast<size_t>(index)]; }
  int index_of(int world_rank) const;

  // This rank takes no more part. The first reason counts; peers that wait for it get it as their error.
  void leave(DeskState state, const std::string& reason);
  DeskState state(int index) const { return view(index).desk().state.load(); }
  // Why nothing more will come from a desk; empty when something may. `look`: ask options_.lost, too, which takes a system call.
  std::string gone(int index, bool look = true) const;
  // -1: not opened yet.
  int find_channel(int index, uint64_t id) const;

  DeskOptions options_;
  int own_;  // index of this rank's desk
  bool spins_;
  std::mutex mutex_;  // guards what follows, and what leave() writes
  int channels_ = 0;
};

}  // namespace muster::trainer
