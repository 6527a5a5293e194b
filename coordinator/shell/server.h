// The complete coordinator in one object: state directory, core loop, gRPC and HTTP listeners.
// Created by main.cc from the command line, and by tests in their own process.
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
  bool insecure = false;         // permits open --listen and --http
  bool trusted_network = false;  // permits an open --http
  CoreOptions core;
  int32_t worker_series = daemon::kSeriesSample;  // see MetricsOptions, also for the next
  int32_t job_series = daemon::kJobsShown;
  // Limit from a worker's stream to its registration; silent streams would hold memory.
  Duration registration_budget = std::chrono::seconds(10);
  // Called once, on a thread of the server, if it can no longer store its state and has stopped
  // working; the owner then destroys it.
  std::function<void(absl::Status)> on_fatal;
};

class Server {
 public:
  // Locks the state directory, loads the state and listens; the server is ready on return. Errors
  // name the flag, the port, the file or the process that prevents the start.
  static absl::StatusOr<std::unique_ptr<Server>> start(const ServerOptions& options);

  // Stops cleanly: pending callers receive UNAVAILABLE, workers reconnect later, ranks run on.
  virtual ~Server() = default;

  virtual int grpc_port() const = 0;
  virtual int http_port() const = 0;
};

}  // namespace muster::coordinator
