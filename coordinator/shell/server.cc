#include "coordinator/shell/server.h"

#include <atomic>
#include <chrono>
#include <future>
#include <utility>

#include <absl/strings/str_cat.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#ifdef MUSTER_HAVE_GRPC_REFLECTION
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#endif
#include <spdlog/spdlog.h>

#include "coordinator/shell/core_loop.h"
#include "coordinator/shell/fleet_service.h"
#include "coordinator/shell/log_store.h"
#include "coordinator/shell/metrics.h"
#include "coordinator/shell/muster_service.h"
#include "coordinator/shell/sqlite_storage.h"
#include "coordinator/shell/state_lock.h"
#include "daemon/endpoint.h"
#include "daemon/grpc_deadline.h"
#include "daemon/http_server.h"
#include "daemon/limits.h"
#include "daemon/process.h"

namespace muster::coordinator {
namespace {

// A scrape that waits longer for the core than this says so instead.
constexpr auto kScrapeBudget = std::chrono::seconds(2);
// Calls that have been told to end get this long to do so.
constexpr auto kShutdownBudget = std::chrono::milliseconds(500);

class ServerImpl final : public Server {
 public:
  ~ServerImpl() override;

  absl::Status open_state(const ServerOptions& options);
  absl::Status listen_http(const std::string& address);
  absl::Status listen_grpc(const daemon::Endpoint& endpoint, Duration registration_budget);
  void set_ready() { ready_ = true; }

  int grpc_port() const override { return grpc_port_; }
  int http_port() const override { return http_->port(); }

 private:
  daemon::HttpResponse metrics_page();
  daemon::HttpResponse ready_page() const;

  std::atomic<bool> ready_{false};
  int grpc_port_ = 0;
  // In the order of construction; each uses only what is above it.
  std::unique_ptr<StateLock> lock_;
  std::unique_ptr<Storage> storage_;
  std::unique_ptr<LogStore> logs_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<CoreLoop> loop_;
  std::unique_ptr<MusterService> muster_;
  std::unique_ptr<FleetService> fleet_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<daemon::HttpServer> http_;
  Epoch epoch_;
};

ServerImpl::~ServerImpl() {
  ready_ = false;
  http_.reset();
  if (loop_ != nullptr) loop_->stop();
  if (grpc_ != nullptr) {
    grpc_->Shutdown(daemon::grpc_deadline(monotonic_now() + kShutdownBudget));
    grpc_->Wait();
  }
}

absl::Status ServerImpl::open_state(const ServerOptions& options) {
  if (absl::Status status = daemon::make_writable_directory(options.state_dir); !status.ok())
    return status;
  auto lock = StateLock::take(options.state_dir);
  if (!lock.ok()) return lock.status();
  lock_ = *std::move(lock);
  auto storage = open_sqlite_storage(absl::StrCat(options.state_dir, "/muster.db"));
  if (!storage.ok()) return storage.status();
  storage_ = *std::move(storage);
  auto epoch = storage_->begin_epoch();
  if (!epoch.ok()) return epoch.status();
  epoch_ = *epoch;
  auto state = storage_->load();
  if (!state.ok()) return state.status();
  spdlog::info("epoch {}: {} jobs are known", epoch_.value(), state->jobs.size());
  logs_ = std::make_unique<LogStore>(absl::StrCat(options.state_dir, "/logs"),
                                     daemon::kLogBytesPerRankMax);
  metrics_ = std::make_unique<Metrics>(epoch_);
  loop_ = std::make_unique<CoreLoop>(Core(options.core, *std::move(state), monotonic_now()),
                                     *storage_, *logs_, *metrics_, options.on_fatal);
  return absl::OkStatus();
}

absl::Status ServerImpl::listen_http(const std::string& address) {
  auto server = daemon::HttpServer::start(
      address, {{"/healthz",
                 [] {
                   return daemon::HttpResponse{200, "text/plain; charset=utf-8", "ok\n"};
                 }},
                {"/readyz", [this] { return ready_page(); }},
                {"/metrics", [this] { return metrics_page(); }}});
  if (!server.ok()) return server.status();
  http_ = *std::move(server);
  return absl::OkStatus();
}

daemon::HttpResponse ServerImpl::ready_page() const {
  if (ready_) return {200, "text/plain; charset=utf-8", "ready\n"};
  return {503, "text/plain; charset=utf-8", "the state is being loaded\n"};
}

daemon::HttpResponse ServerImpl::metrics_page() {
  const daemon::HttpResponse unavailable{503, "text/plain; charset=utf-8",
                                         "the core does not answer\n"};
  if (!ready_) return unavailable;
  auto promise = std::make_shared<std::promise<std::string>>();
  std::future<std::string> page = promise->get_future();
  const absl::Status status = loop_->query([this, promise](const Core* core, Instant now) {
    promise->set_value(core == nullptr ? "" : metrics_->render(*core, now, wall_clock_unix_ns()));
  });
  if (!status.ok() || page.wait_for(kScrapeBudget) != std::future_status::ready) return unavailable;
  return {200, "text/plain; version=0.0.4; charset=utf-8", page.get()};
}

absl::Status ServerImpl::listen_grpc(const daemon::Endpoint& endpoint,
                                     Duration registration_budget) {
  muster_ = std::make_unique<MusterService>(*loop_, *logs_);
  fleet_ = std::make_unique<FleetService>(*loop_, *logs_, epoch_, registration_budget);
  grpc::EnableDefaultHealthCheckService(true);
#ifdef MUSTER_HAVE_GRPC_REFLECTION
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
#endif
  grpc::ServerBuilder builder;
  // Without this, a second coordinator could quietly share the port.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(daemon::kMessageBytesMax);
  // Only reflection is served by gRPC's own polling threads: one is enough for it.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  builder.AddListeningPort(endpoint.to_string(), grpc::InsecureServerCredentials(), &grpc_port_);
  builder.RegisterService(muster_.get());
  builder.RegisterService(fleet_.get());
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr || grpc_port_ == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("--listen=", endpoint.to_string(), ": port ", endpoint.port,
                     " is in use or the address is not this machine's; stop the "
                     "other program, or choose another port (0 for any free one)"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::start(const ServerOptions& options) {
  const auto listen = daemon::parse_endpoint("--listen", options.listen);
  if (!listen.ok()) return listen.status();
  const auto http = daemon::parse_endpoint("--http", options.http);
  if (!http.ok()) return http.status();
  for (const auto& [flag, endpoint] :
       {std::pair{"--listen", *listen}, std::pair{"--http", *http}}) {
    if (absl::Status status = daemon::check_exposure(flag, endpoint, options.insecure);
        !status.ok())
      return status;
  }
  auto server = std::make_unique<ServerImpl>();
  absl::Status status = server->listen_http(options.http);
  if (status.ok()) status = server->open_state(options);
  if (status.ok()) status = server->listen_grpc(*listen, options.registration_budget);
  if (!status.ok()) return status;
  server->set_ready();
  return server;
}

}  // namespace muster::coordinator
