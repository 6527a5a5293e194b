#include "coordinator/shell/standby.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <prometheus/registry.h>

#include "coordinator/shell/grpc/server_trust.h"
#include "coordinator/shell/start_exit.h"
#include "daemon/http_server.h"
#include "daemon/metric_families.h"
#include "daemon/metrics_text.h"

namespace muster::coordinator {
namespace {

constexpr const char* kStandbyText = "text/plain; charset=utf-8";

std::string standby_of(const std::optional<LeaderRecord>& leader) {
  if (!leader) return "standby; no coordinator leads\n";
  return absl::StrCat("standby of ", leader->grpc, "\n",
                      leader->http.empty() ? "" : absl::StrCat("page: ", leader->http, "\n"));
}

std::string standby_metrics(const std::string& version) {
  prometheus::Registry registry;
  daemon::gauges<"muster_coordinator_leader">(registry).Add({}).Set(0);
  daemon::gauges<"muster_coordinator_build_info">(registry).Add({{"version", version}}).Set(1);
  return daemon::metrics_text(registry.Collect());
}

class StandbyImpl final : public Standby {
 public:
  explicit StandbyImpl(std::unique_ptr<daemon::HttpServer> http) : http_(std::move(http)) {}
  int http_port() const override { return http_->port(); }

 private:
  const std::unique_ptr<daemon::HttpServer> http_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Standby>> Standby::start(
    const ServerOptions& options, std::function<std::optional<LeaderRecord>()> leader) {
  const auto name_leader = [leader](int status) {
    return [leader, status](const daemon::HttpReply& reply) {
      reply({status, kStandbyText, standby_of(leader())});
    };
  };
  daemon::HttpOptions http{
      .pages = {{"/healthz", name_leader(200)},
                {"/readyz", name_leader(503)},
                {"/metrics",
                 [metrics = standby_metrics(options.core.version)](const daemon::HttpReply& reply) {
                   reply({200, "text/plain; version=0.0.4; charset=utf-8", metrics});
                 }}},
      .rest = [leader](const daemon::HttpRequest&, const daemon::HttpReply& reply) {
        reply({503, kStandbyText, standby_of(leader())});
      }};
  auto tls = http_tls(options.trust);
  if (!tls.ok()) return exits_as(StartExit::kCertificate, tls.status());
  http.tls = *std::move(tls);
  auto server = daemon::HttpServer::start(options.http, std::move(http));
  if (!server.ok()) return exits_as(StartExit::kPort, server.status());
  return std::make_unique<StandbyImpl>(*std::move(server));
}

}  // namespace muster::coordinator
