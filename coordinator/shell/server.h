// The complete coordinator in one object: state directory, core loop, gRPC and HTTP listeners.
// Created by main.cc from the command line, and by tests in their own process.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "coordinator/core/core.h"
#include "coordinator/shell/etcd/etcd_client.h"
#include "coordinator/shell/etcd/leader_lease.h"
#include "coordinator/shell/grpc/server_trust.h"
#include "coordinator/shell/loop/overload.h"
#include "daemon/metric_words.h"

namespace muster::coordinator {

struct ServerOptions {
  std::string listen = "127.0.0.1:7070";
  std::string http = "127.0.0.1:7071";
  std::string state_dir;
  ServerTrust trust;
  // permits --listen and --http on addresses that other machines can reach
  bool insecure = false;
  bool trusted_network = false;   // permits the same for --http only
  std::string audit_log = {};     // the file; empty: audit.jsonl in state_dir
  std::string queue_policy = {};  // the file (policy_file.h); empty: no quotas and shares
  CoreOptions core;
  int32_t worker_series = daemon::kSeriesSample;  // see MetricsOptions
  int32_t job_series = daemon::kJobsShown;
  OverloadLimits overload;
  // The time limit from the start of a worker's stream to its registration, because streams without
  // a registration would occupy memory.
  Duration registration_budget = std::chrono::seconds(10);
  // A connection without a call ends after this time. A worker's stream is a call, and a client of
  // a closed connection opens another one.
  Duration idle_connection = std::chrono::seconds(60);
  // How often the tokens of open streams are checked, and the page's streams pinged.
  Duration ping_every = std::chrono::seconds(15);
  // The common store of several coordinators, and the lease that this one holds; null: the state is
  // in state_dir alone. Must outlive the server. core.coordinator is then the address of this one.
  EtcdClient* etcd = nullptr;
  LeaderLease* lease = nullptr;
  // Called once, on a thread of the server, when the server has stopped because it can no longer
  // store its state. The owner then destroys the server.
  std::function<void(absl::Status)> on_fatal;
};

class Server {
 public:
  // Locks the state directory, loads the state and starts to listen. The server is ready when the
  // call returns. Errors name the flag, the port, the file or the process that prevents the start.
  static absl::StatusOr<std::unique_ptr<Server>> start(const ServerOptions& options);

  // Stops cleanly: pending callers receive UNAVAILABLE, ranks continue to run, and workers connect
  // to the next coordinator.
  virtual ~Server() = default;

  virtual int grpc_port() const = 0;
  virtual int http_port() const = 0;
};

}  // namespace muster::coordinator
