// A simulated worker with a real stream to the coordinator. It registers, sends heartbeats like a
// worker, and starts and stops ranks that exist only in its messages.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "common/time/time.h"
#include "muster/v1/muster.grpc.pb.h"

namespace muster::bench {

// The observations of all simulated workers of this process. Thread-safe.
class SwarmRecord {
 public:
  void registered();
  // `was_registered`: the stream's worker had been registered.
  void ended(const grpc::Status& status, bool was_registered);
  void started(int64_t ranks);
  void stopped(int64_t ranks);
  void heartbeat();
  void round_trip(Duration time);
  // Returns the record as one line of JSON, and resets heartbeats, round trips, starts and stops.
  std::string take();

 private:
  std::mutex mutex_;
  int64_t registered_ = 0;     // workers that are registered now
  int64_t registrations_ = 0;  // since the start
  int64_t started_ = 0;
  int64_t stopped_ = 0;
  int64_t heartbeats_ = 0;
  // The times of the last registration, start and stop, by CLOCK_MONOTONIC.
  int64_t registered_at_ns_ = 0;
  int64_t started_at_ns_ = 0;
  int64_t stopped_at_ns_ = 0;
  std::vector<double> round_trips_ms_;
  std::map<std::string, int64_t> ends_;  // number of ended streams, by their status
};

struct SimWorkerOptions {
  std::string coordinator;
  std::shared_ptr<grpc::ChannelCredentials> credentials;  // null: no TLS
  std::string name;
  int32_t slots = 8;
};

// A simulated worker, which owns its connection. Ranks that are stopped end before the worker's
// next heartbeat and are reported with it. Thread-safe. The record and the workers outlive
// all gRPC callbacks, because the process ends without destroying them.
class SimWorker {
 public:
  SimWorker(SimWorkerOptions options, SwarmRecord& record)
      : options_(std::move(options)), record_(record) {}

  // Connects if there is no connection and the time of the next attempt has come. Returns the time
  // of the next call.
  Instant connect_if_due(Instant now);
  // Sends a heartbeat. With `probe`, also reports an exit of no rank; its acknowledgement gives the
  // time of a round trip through the coordinator's core. Returns the time of the next call.
  Instant beat(Instant now, bool probe);
  // Reports that one rank was killed by SIGKILL. Returns false if the worker has no rank.
  bool kill_a_rank();
  // Begins another incarnation without ranks, as after the loss of the node. Returns false if the
  // worker has no rank.
  bool lose_node();

 private:
  class Stream;
  void connect_locked();
  void set_pace_locked(int64_t idle_ms, int64_t busy_ms, int64_t spread_ms);
  void on_message(const v1::CoordinatorMessage& message);
  double random_share();
  void on_done(const grpc::Status& status);
  void start_ranks(const v1::StartRanks& order);
  void stop_ranks(const v1::StopRanks& order);
  void pass_check(uint64_t check);
  v1::WorkerMessage heartbeat_message();
  // Sets the job, attempt and rank of a message about one of this worker's ranks.
  template <class Proto>
  void identify(int32_t rank, Proto& proto) const;
  v1::WorkerMessage exit_message_locked(uint64_t job, uint32_t attempt, int32_t rank,
                                        int32_t signal, bool ordered);

  const SimWorkerOptions options_;
  SwarmRecord& record_;
  std::mutex mutex_;
  std::shared_ptr<Stream> stream_;
  // Kept until the next connection: gRPC calls back on its own threads, and if one of them destroys
  // the last channel of the process, it frees the queue on which it waits.
  std::shared_ptr<Stream> ended_stream_;
  bool registered_ = false;
  uint32_t failures_ = 0;  // streams that ended since the last registration
  Instant retry_at_{};
  uint64_t report_ = 0;
  uint64_t draws_ = 0;
  uint64_t incarnation_ = 1;
  uint64_t store_ = 0;
  Duration idle_interval_ = std::chrono::seconds(1);
  Duration busy_interval_ = std::chrono::milliseconds(250);
  Duration spread_{};  // the time over which the fleet's workers reconnect
  std::map<uint64_t, Instant> probes_;
  uint64_t job_ = 0;
  uint32_t attempt_ = 0;
  uint64_t steps_ = 0;
  std::vector<int32_t> ranks_;
  std::vector<v1::WorkerMessage> ending_;  // reports of stopped ranks
};

}  // namespace muster::bench
