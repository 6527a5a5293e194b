#include "coordinator/shell/candidacy.h"

#include <unistd.h>

#include <utility>

#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

#include "common/process/host_name.h"
#include "coordinator/shell/standby.h"
#include "coordinator/shell/start_exit.h"
#include "daemon/endpoint.h"

namespace muster::coordinator {
namespace {

bool is_any_address(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

// Returns the address at which others reach the listener `text` of the flag.
absl::StatusOr<daemon::Endpoint> reachable(std::string_view flag, const std::string& text) {
  auto endpoint = daemon::parse_endpoint(flag, text);
  if (endpoint.ok() && is_any_address(endpoint->host)) endpoint->host = host_name();
  return endpoint;
}

}  // namespace

Candidacy::Candidacy(std::unique_ptr<EtcdClient> client, LeaderRecord self,
                     std::function<void(absl::Status)> on_lost)
    : client_(std::move(client)),
      self_(std::move(self)),
      lease_(*client_, {.self = self_, .on_lost = std::move(on_lost)}) {}

absl::StatusOr<std::unique_ptr<Candidacy>> Candidacy::create(const CandidacyOptions& options,
                                                             const ServerOptions& server) {
  const bool is_advertised = !options.advertise.empty();
  const auto grpc = is_advertised ? daemon::parse_endpoint("--advertise", options.advertise)
                                  : reachable("--listen", server.listen);
  if (!grpc.ok()) return grpc.status();
  if (grpc->port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(is_advertised ? "--advertise=" : "--listen=",
                     is_advertised ? options.advertise : server.listen,
                     ": one of several coordinators needs a fixed port, which workers and clients "
                     "have in their lists"));
  }
  const auto http = reachable("--http", server.http);
  if (!http.ok()) return http.status();
  auto client = EtcdClient::create(options.etcd);
  if (!client.ok()) return client.status();
  LeaderRecord self{.grpc = grpc->to_string(),
                    .http = http->port == 0 ? "" : http->to_string(),
                    .host = host_name(),
                    .pid = getpid()};
  return std::unique_ptr<Candidacy>(
      new Candidacy(*std::move(client), std::move(self), options.on_lost));
}

absl::Status Candidacy::win(const ServerOptions& server, const std::stop_token& stop,
                            const std::function<void(int http_port)>& on_standby) {
  const auto standby = Standby::start(server, [this] { return lease_.seen_leader(); });
  if (!standby.ok()) return standby.status();
  on_standby((*standby)->http_port());
  spdlog::info("{} waits as a standby until it leads; the store is {}", self_.grpc,
               client_->endpoints());
  absl::Status status = lease_.campaign(stop);
  if (!status.ok() && !absl::IsCancelled(status)) return exits_as(StartExit::kStore, status);
  return status;
}

}  // namespace muster::coordinator
