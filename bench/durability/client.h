// A caller that submits, watches and cancels jobs, and repeats each request until it is answered.
#pragma once

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "bench/durability/observations.h"
#include "muster/v1/muster.grpc.pb.h"

namespace muster::bench {

class Client {
 public:
  // Requires that `observations` outlives the client. Starts a thread, which the destructor joins.
  Client(const std::string& coordinator, int index, int32_t nodes_max, int32_t ranks_max,
         uint64_t seed, Observations& observations);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Submits no further jobs, and waits until each confirmed job has ended.
  void finish() { finishing_ = true; }
  bool has_finished() const { return finished_; }

 private:
  void run();
  void submit();
  void cancel(uint64_t job);
  bool follow(uint64_t job);

  const int index_;
  const int32_t nodes_max_;
  const int32_t ranks_max_;
  Observations& observations_;
  std::unique_ptr<v1::Muster::Stub> stub_;
  std::mt19937_64 random_;
  int64_t next_ = 1;
  std::vector<uint64_t> open_;  // confirmed jobs whose end was not observed
  std::atomic<bool> finishing_{false};
  std::atomic<bool> finished_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace muster::bench
