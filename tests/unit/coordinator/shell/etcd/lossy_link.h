// A TCP relay on a loopback port that loses connections, or delays requests, as a test requires.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace muster::coordinator {

class LossyLink {
 public:
  // Relays to the loopback port `to`.
  explicit LossyLink(int to);
  ~LossyLink();
  LossyLink(const LossyLink&) = delete;
  LossyLink& operator=(const LossyLink&) = delete;

  std::string endpoint() const;
  // Forwards `bytes` more from clients, and then nothing in either direction. Accepts no further
  // connections.
  void cut_after(int64_t bytes) { bytes_left_ = bytes; }
  // Forwards answers at this rate from now on.
  void slow_down(int64_t bytes_per_second) { bytes_per_second_ = bytes_per_second; }
  // Returns whether these bytes were forwarded.
  bool is_cut() const { return bytes_left_ <= 0; }
  // Loses each answer, and closes the connection, if a client has sent at least `bytes` since.
  void lose_next_answer(int64_t bytes) { lose_after_ = bytes; }
  // Returns whether an answer was lost.
  bool has_lost() const { return has_lost_; }
  // Holds the request that contains `needle` for the `occurrence`th time from now on (1: the first
  // time), and all that its client sends on this connection afterwards. Requires that the request
  // arrives at once, so that it is small.
  void hold(std::string needle, int occurrence = 1);
  bool is_holding() const { return state_ == Hold::kHolding; }
  // Delivers the held request, and what follows it once the request was answered. Blocks until it
  // was answered.
  void release();

 private:
  struct Pair;
  enum class Hold { kNone, kArmed, kHolding, kReleased, kAnswered };
  void run();
  bool hold_back(Pair& pair, const char* bytes, int64_t size);
  bool deliver(Pair& pair);
  bool relay(Pair& pair, bool from_client);

  const int to_;
  const int listener_;
  int port_ = 0;
  std::atomic<bool> ended_{false};
  std::atomic<int64_t> bytes_left_{INT64_MAX};
  std::atomic<int64_t> lose_after_{INT64_MAX};
  std::atomic<bool> has_lost_{false};
  std::atomic<int64_t> bytes_per_second_{INT64_MAX};
  std::mutex mutex_;
  std::string needle_;  // guarded by mutex_
  int occurrence_ = 0;  // guarded by mutex_
  std::atomic<Hold> state_{Hold::kNone};
  std::thread thread_;
};

}  // namespace muster::coordinator
