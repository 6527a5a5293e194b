// Where the threads of a `local` group wait for each other. Internal to comm.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>

namespace muster::trainer {

// Thread-safe.
class LocalMeeting {
 public:
  LocalMeeting(int size, std::chrono::milliseconds timeout);

  int size() const { return size_; }

  // A collective: `arrive` offers this rank's buffer and returns once all ranks have; between the
  // two calls every rank may touch the offered buffers; `leave` returns once all have called it.
  // Only `arrive` can fail: after it every rank is on its way to `leave`, and nobody's buffer may
  // go away before.
  absl::Status arrive(int rank, std::span<float> buffer);
  void leave();
  std::span<float> buffer(int rank) const { return buffers_[static_cast<size_t>(rank)]; }

  // Copies between two ranks. Another rank that has left does not disturb them.
  absl::Status send(int from, int to, std::span<const float> data);
  absl::Status recv(int from, int to, std::span<float> data);

  // Rank `rank` takes no more part: every present and later collective fails, and every copy from or to it.
  void break_up(int rank, const std::string& reason);

 private:
  struct Parcel {
    std::span<const float> data;
    bool taken = false;
  };

  absl::Status broken() const { return absl::UnavailableError(reason_); }
  // Whether one end of a copy takes no more part, and the reason.
  bool pair_broken(int a, int b) const;
  absl::Status pair_status(int a, int b) const;
  std::string missing_ranks() const;

  const int size_;
  const std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::span<float>> buffers_;
  std::vector<bool> present_;
  int arrived_ = 0;
  int left_ = 0;
  uint64_t arrivals_ = 0;    // meetings that became complete
  uint64_t departures_ = 0;  // meetings that ended
  std::map<std::pair<int, int>, Parcel> parcels_;
  std::vector<std::string> gone_;  // by rank: why it takes no more part; empty: it does
  std::string reason_;             // the first of them; empty: the group is whole
};

}  // namespace muster::trainer
