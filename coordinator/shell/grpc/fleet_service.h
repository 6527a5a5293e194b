// The Fleet service: one stream per worker (worker_stream.h).
//
// The service has several completion queues, each with one thread. A build of gRPC with debug
// checks searches all pending operations of a queue whenever one of them ends, and every stream has
// two: with one queue for 12,500 workers, this takes a quarter of the coordinator's time
// (docs/scale.md).
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/shell/grpc/worker_stream.h"

namespace muster::coordinator {

class FleetService {
 public:
  // Requires that `loop`, `logs` and `callers` outlive the service. The service ends a stream whose
  // worker has not introduced itself within `registration_budget`.
  // `connections`: those of the port; null: unknown.
  FleetService(CoreLoop& loop, LogStore& logs, std::shared_ptr<ShellMetrics> metrics,
               Callers& callers, Epoch epoch, Duration registration_budget,
               std::shared_ptr<const OpenConnections> connections = nullptr)
      : parts_{loop, logs, std::move(metrics), callers, epoch, std::move(connections)},
        registration_budget_(registration_budget) {}
  // Stops as stop() does.
  ~FleetService();
  FleetService(const FleetService&) = delete;
  FleetService& operator=(const FleetService&) = delete;

  // Adds the service to a server. Call it once.
  void add_to(grpc::ServerBuilder& builder);
  // Serves calls. Call it once, when the server has started.
  void serve();
  // Waits for the end of all streams. Requires that the server, if it has started, was shut down;
  // call it before the server is destroyed.
  void stop();

 private:
  struct Queue {
    std::unique_ptr<grpc::ServerCompletionQueue> calls;
    std::shared_ptr<WorkerStream> waiting;  // for the next call
    // Streams whose workers may not have introduced themselves, by the end of their time.
    std::deque<std::pair<Instant, std::weak_ptr<WorkerStream>>> unknown;
    std::thread thread;
  };

  void run(Queue& queue);
  void wait_for_call(Queue& queue);
  void accept(Queue& queue, bool ok);
  void expire(Queue& queue) const;

  FleetParts parts_;
  const Duration registration_budget_;
  WorkerStream::Service service_;
  std::vector<Queue> queues_;
};

}  // namespace muster::coordinator
