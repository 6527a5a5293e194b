// The whole coordinator in one object: state directory, core loop, gRPC and HTTP listeners. main.cc makes one
// from the command line; tests make one in their own process.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "coordinator/core/core.h"
#include "coordinator/shell/server_trust.h"
#include "daemon/metric_words.h"

namespace muster::coordinator {

struct ServerOptions {
  std::string listen = "127.0.0.1:7070";
  std::string http = "127.0.0.1:7071";
  std::string state_dir;
  ServerTrust trust;
  bool insecure = false;         // --listen and --http may be reached by others as they are
  bool trusted_network = false;  // --http may
  CoreOptions core;
  int32_t worker_series = daemon::kSeriesSample;  // this and the next as MetricsOptions'
  int32_t job_series = daemon::kJobsShown;
  // From a worker's stream to its registration; a stream that waits for ever would hold memory for nothing.
  Duration registration_budget = std::chrono::seconds(10);
  // Called once, on a thread of the server's, when it can no longer store its state and has stopped working;
  // the owner then destroys it.
  std::function<void(absl::Status)> on_fatal;
};

class Server {
 public:
  // Takes the state directory, loads the state and listens; ready when it returns. Errors name the flag, the
  // port, the file or the process that is in the way.
  static absl::StatusOr<std::unique_ptr<Server>> start(const ServerOptions& options);

  // Stops cleanly: waiting callers get UNAVAILABLE, workers reconnect later, ranks run on.
  virtual ~Server() = default;

  virtual int grpc_port() const = 0;
  virtual int http_port() const = 0;
};

}  // namespace muster::coordinator
