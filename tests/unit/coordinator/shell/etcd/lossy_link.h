// A TCP relay on a loopback port that loses connections as a test requires.
#pragma once

#include <atomic>
#include <cstdint>
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
  // Returns whether these bytes were forwarded.
  bool is_cut() const { return bytes_left_ <= 0; }
  // Loses each answer, and closes the connection, if a client has sent at least `bytes` since.
  void lose_next_answer(int64_t bytes) { lose_after_ = bytes; }
  // Returns whether an answer was lost.
  bool has_lost() const { return has_lost_; }

 private:
  struct Pair;
  void run();
  bool relay(Pair& pair, bool from_client);

  const int to_;
  const int listener_;
  int port_ = 0;
  std::atomic<bool> ended_{false};
  std::atomic<int64_t> bytes_left_{INT64_MAX};
  std::atomic<int64_t> lose_after_{INT64_MAX};
  std::atomic<bool> has_lost_{false};
  std::thread thread_;
};

}  // namespace muster::coordinator
