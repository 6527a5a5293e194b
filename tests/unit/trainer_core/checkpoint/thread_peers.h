// Implements CheckpointPeers for ranks that are threads of the test.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "trainer_core/checkpoint/checkpoint_peers.h"

namespace muster::trainer {

class ThreadPeers : public CheckpointPeers {
 public:
  // The memory that the peers share. It must outlive them.
  class Meeting {
   public:
    explicit Meeting(int size) : texts_(static_cast<size_t>(size)) {}

   private:
    friend class ThreadPeers;
    // Blocks until all peers have called it.
    void wait() {
      std::unique_lock lock(mutex_);
      const int round = round_;
      if (++arrived_ == static_cast<int>(texts_.size())) {
        arrived_ = 0;
        ++round_;
        changed_.notify_all();
      }
      changed_.wait(lock, [&] { return round_ != round; });
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::string> texts_;
    int arrived_ = 0;
    int round_ = 0;
  };

  ThreadPeers(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(meeting_.texts_.size()); }
  int world_rank(int rank) const override { return rank; }

  absl::StatusOr<std::vector<std::string>> gather(std::string_view mine) override {
    meeting_.texts_[static_cast<size_t>(rank_)] = mine;
    meeting_.wait();
    std::vector<std::string> all;
    if (rank_ == 0) all = meeting_.texts_;
    meeting_.wait();
    return all;
  }
  absl::StatusOr<std::string> share(std::string_view leader_text) override {
    if (rank_ == 0) meeting_.texts_[0] = leader_text;
    meeting_.wait();
    std::string text = meeting_.texts_[0];
    meeting_.wait();
    return text;
  }

 private:
  Meeting& meeting_;
  const int rank_;
};

}  // namespace muster::trainer
