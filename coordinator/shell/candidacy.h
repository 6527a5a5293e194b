// A coordinator that is one of several with a common store in etcd: waits as a standby until it is
// elected, and holds the lease while it leads.
//
//   create() ──▶ win() ──▶ Server::start() … ──▶ ~Server ──▶ resign()
//
// A process leads at most once. When it loses the lease, it ends at once, without waiting for its
// threads, and its supervisor starts it again as a standby: nothing of the former term can act.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "coordinator/shell/etcd/etcd_client.h"
#include "coordinator/shell/etcd/leader_lease.h"
#include "coordinator/shell/server.h"

namespace muster::coordinator {

struct CandidacyOptions {
  EtcdOptions etcd;
  // The address of --listen as workers and clients reach it; empty: that of --listen, or the host's
  // name with its port.
  std::string advertise;
  // As LeaderOptions::on_lost.
  std::function<void(absl::Status reason)> on_lost;
};

class Candidacy {
 public:
  // Checks the flags. Does not connect.
  static absl::StatusOr<std::unique_ptr<Candidacy>> create(const CandidacyOptions& options,
                                                           const ServerOptions& server);

  // Blocks until this coordinator leads. Serves the pages of a standby until then; calls
  // `on_standby` with their port. Returns Cancelled after `stop` was requested, and the errors of
  // LeaderLease::campaign() and Standby::start(), with an exit code.
  absl::Status win(const ServerOptions& server, const std::stop_token& stop,
                   const std::function<void(int http_port)>& on_standby);
  // Call it after the server was destroyed.
  void resign() { lease_.resign(); }

  // The address for workers and clients.
  const std::string& advertised() const { return self_.grpc; }
  EtcdClient& client() { return *client_; }
  LeaderLease& lease() { return lease_; }

 private:
  Candidacy(std::unique_ptr<EtcdClient> client, LeaderRecord self,
            std::function<void(absl::Status)> on_lost);

  const std::unique_ptr<EtcdClient> client_;
  const LeaderRecord self_;
  LeaderLease lease_;
};

}  // namespace muster::coordinator
