// A simulated worker with a real stream to the coordinator: it retains its ranks and
// unacknowledged reports while the coordinator is down, as muster-worker does. Its ranks exist only
// in its messages and end by themselves.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>

#include <grpcpp/grpcpp.h>

#include "bench/durability/observations.h"
#include "common/time/time.h"
#include "muster/v1/muster.grpc.pb.h"

namespace muster::bench {

class Worker {
 public:
  // Requires that `observations` outlives the worker. Starts two threads, which the destructor
  // joins.
  Worker(std::string coordinator, std::string name, int32_t slots, uint64_t seed,
         Observations& observations);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

 private:
  using Stream = grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>;
  struct Running {
    int32_t pid = 0;
    int64_t step = 0;
    Instant ends_at{};
    bool dies = false;  // ends by a signal
  };

  void serve();  // the thread that reads
  void beat();   // the thread that ends ranks and sends heartbeats
  void on_message(const v1::CoordinatorMessage& message);
  void start_ranks(const v1::StartRanks& order);
  void stop_ranks(const v1::StopRanks& order);
  void end_rank(const LaunchedRank& id, int32_t exit_code, int32_t signal, bool ordered);
  v1::WorkerMessage registration();
  void send(const v1::WorkerMessage& message);

  const std::string coordinator_;
  const std::string name_;
  const int32_t slots_;
  Observations& observations_;

  // Guards all members below.
  std::mutex mutex_;
  std::mt19937_64 random_;
  Stream* stream_ = nullptr;  // null until registered
  grpc::ClientContext* context_ = nullptr;
  uint64_t store_ = 0;
  std::map<LaunchedRank, Running> running_;
  std::set<LaunchedRank> known_;                   // ranks that were started here
  std::map<uint64_t, v1::WorkerMessage> reports_;  // unacknowledged
  uint64_t next_report_ = 1;
  int32_t next_pid_ = 1000;

  std::atomic<bool> stopping_{false};
  std::thread reader_;
  std::thread beater_;
};

}  // namespace muster::bench
