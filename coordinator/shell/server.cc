#include "coordinator/shell/server.h"

#include <atomic>
#include <chrono>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#ifdef MUSTER_HAVE_GRPC_REFLECTION
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#endif
#include <spdlog/spdlog.h>

#include "common/version.h"
#include "coordinator/shell/etcd/etcd_storage.h"
#include "coordinator/shell/grpc/admin_service.h"
#include "coordinator/shell/grpc/fleet_service.h"
#include "coordinator/shell/grpc/grpc_port.h"
#include "coordinator/shell/grpc/muster_service.h"
#include "coordinator/shell/logs/log_store.h"
#include "coordinator/shell/loop/core_loop.h"
#include "coordinator/shell/metrics/metrics.h"
#include "coordinator/shell/policy_file.h"
#include "coordinator/shell/start_exit.h"
#include "coordinator/shell/storage/space_reserve.h"
#include "coordinator/shell/storage/sqlite_storage.h"
#include "coordinator/shell/storage/state_backup.h"
#include "coordinator/shell/storage/state_files.h"
#include "coordinator/shell/storage/state_lock.h"
#include "coordinator/shell/web/event_hub.h"
#include "coordinator/shell/web/web_api.h"
#include "daemon/endpoint.h"
#include "daemon/grpc_deadline.h"
#include "daemon/http_server.h"
#include "daemon/limits.h"
#include "daemon/process.h"

namespace muster::coordinator {
namespace {

constexpr const char* kText = "text/plain; charset=utf-8";
// The time limit for the handshake of a connection, because connections without a handshake would
// occupy descriptors.
constexpr int kHandshakeBudgetMs = 10'000;
// The first estimate of the bytes that a read returns. Each connection has a buffer for them until
// they arrive. gRPC doubles the estimate of a connection that receives more.
constexpr int kReadBytes = 1'024;
// The size of the buffer for a connection's outgoing TLS frame; gRPC's default is 16 KiB.
constexpr int kTlsFrameBytes = 4'096;
// The maximum number of connections to the HTTP port: scrapers and probes, kViewersMax streams of
// events, and the other requests of as many browsers. grpc/grpc_port.cc reserves descriptors.
constexpr size_t kHttpConnectionsMax = 320;
// The time for cancelled calls to end.
constexpr auto kShutdownBudget = std::chrono::milliseconds(500);

class ServerImpl final : public Server {
 public:
  explicit ServerImpl(const ServerOptions& options)
      : audit_log_(std::make_shared<AuditLog>(
            AuditLogOptions{.path = options.audit_log.empty()
                                        ? absl::StrCat(options.state_dir, "/audit.jsonl")
                                        : options.audit_log},
            shell_metrics_)) {}
  ~ServerImpl() override;

  absl::Status open_state(const ServerOptions& options);
  absl::Status open_storage(const ServerOptions& options);
  absl::Status listen_http(const ServerOptions& options);
  absl::Status take_grpc_port(const daemon::Endpoint& endpoint);
  void serve_page(const ServerOptions& options, std::shared_ptr<Tokens> tokens);
  absl::Status serve_grpc(const ServerOptions& options,
                          const std::shared_ptr<grpc::ServerCredentials>& credentials,
                          std::shared_ptr<Tokens> tokens);
  absl::Status watch_policy(const std::string& path);
  void set_ready() { ready_ = true; }
  std::shared_ptr<ShellMetrics> shell_metrics() const { return shell_metrics_; }
  std::shared_ptr<AuditLog> audit_log() const { return audit_log_; }

  int grpc_port() const override { return port_->port(); }
  int http_port() const override { return http_->port(); }

 private:
  void metrics_page(const daemon::HttpReply& reply);
  daemon::HttpResponse health_page() const;
  void ready_page(const daemon::HttpReply& reply);

  std::atomic<bool> ready_{false};
  std::atomic<bool> reads_disk_{false};
  // The members are declared in the order of construction; each uses only members above it.
  WebPools pools_;
  std::unique_ptr<StateLock> lock_;
  std::unique_ptr<SpaceReserve> reserve_;
  std::unique_ptr<Storage> storage_;
  std::unique_ptr<LogStore> logs_;
  const std::shared_ptr<ShellMetrics> shell_metrics_ = std::make_shared<ShellMetrics>();
  std::shared_ptr<AuditLog> audit_log_;
  std::unique_ptr<Metrics> metrics_;
  LeaderLease* lease_ = nullptr;  // that of the options, once the loop exists
  std::unique_ptr<CoreLoop> loop_;
  std::unique_ptr<PolicyFile> policy_;
  std::string stored_policy_;  // the text of the queue policy when the state was loaded
  std::unique_ptr<Callers> callers_;
  std::unique_ptr<AdminService> admin_;
  std::unique_ptr<MusterService> muster_;
  std::unique_ptr<FleetService> fleet_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<GrpcPort> port_;
  std::unique_ptr<EventHub> hub_;
  std::unique_ptr<WebApi> web_;
  std::unique_ptr<daemon::HttpServer> http_;
  Epoch epoch_;
};

ServerImpl::~ServerImpl() {
  ready_ = false;
  if (lease_ != nullptr) lease_->renew_while(nullptr);
  http_.reset();
  port_.reset();
  policy_.reset();
  if (callers_ != nullptr) callers_->stop();
  if (loop_ != nullptr) loop_->stop();
  pools_.stop();
  hub_.reset();
  if (grpc_ != nullptr) {
    grpc_->Shutdown(daemon::grpc_deadline(monotonic_now() + kShutdownBudget));
    grpc_->Wait();
    fleet_->stop();
  }
}

// Returns the check of the loop that this coordinator still leads; null: there is no other.
std::function<absl::Status()> check_of(const LeaderLease* lease) {
  if (lease == nullptr) return nullptr;
  return [lease] { return lease->check_held(); };
}

bool lacks_space(const absl::Status& status) {
  return exit_of_state(status) == StartExit::kNoSpace;
}

absl::Status ServerImpl::open_state(const ServerOptions& options) {
  reserve_ = std::make_unique<SpaceReserve>(options.state_dir);
  absl::Status status = open_storage(options);
  // Without the lock the reserve is that of another coordinator, which needs it for its end.
  if (lacks_space(status) && lock_ != nullptr && reserve_->release()) {
    spdlog::warn("{}; uses the space that is reserved for this", std::string(status.message()));
    status = open_storage(options);
  }
  if (!status.ok()) return exits_as(exit_of_state(status), status);
  reserve_->take();
  if (absl::Status opened = audit_log_->open(); !opened.ok())
    return exits_as(exit_of_state(opened), opened);
  auto state = storage_->load();
  if (!state.ok()) return exits_as(exit_of_state(state.status()), state.status());
  spdlog::info("epoch {}: {} jobs are known", epoch_.value(), state->jobs.size());
  // Logs are stored by state store, because job 1 of another store is another job.
  logs_ = std::make_unique<LogStore>(
      absl::StrCat(options.state_dir, "/logs/", absl::Hex(state->store.value(), absl::kZeroPad16)),
      daemon::kLogBytesPerRankMax, LogLimits{}, options.core.coordinator);
  std::set<JobId> known;
  for (const Job& job : state->jobs) known.insert(job.id);
  logs_->remove_all_but(known);
  stored_policy_ = state->queue_policy;
  shell_metrics_->show_disk(options.state_dir);
  metrics_ =
      std::make_unique<Metrics>(epoch_, MetricsOptions{.worker_series = options.worker_series,
                                                       .job_series = options.job_series,
                                                       .shell = shell_metrics_});
  loop_ = std::make_unique<CoreLoop>(Core(options.core, *std::move(state), monotonic_now()),
                                     *storage_, *logs_, *metrics_, options.on_fatal, reserve_.get(),
                                     options.overload, check_of(options.lease));
  if (lease_ = options.lease; lease_ != nullptr) {
    lease_->renew_while([this] { return loop_->check_alive(monotonic_now()); });
  }
  return absl::OkStatus();
}

// Locks the state directory, opens its state and begins an epoch. Called again after an error, once
// there is space.
absl::Status ServerImpl::open_storage(const ServerOptions& options) {
  const std::string& state_dir = options.state_dir;
  if (absl::Status status = daemon::make_writable_directory(state_dir); !status.ok())
    return absl::Status(status.code(), absl::StrCat("--state-dir: ", status.message()));
  if (lock_ == nullptr) {
    auto lock = StateLock::take(state_dir);
    if (!lock.ok()) return lock.status();
    lock_ = *std::move(lock);
  }
  StateBackup::remove_left(state_dir);
  const bool has_etcd = options.lease != nullptr;
  if (absl::Status status = check_state_files(state_dir, has_etcd); !status.ok()) return status;
  auto storage = has_etcd ? open_etcd_storage(*options.etcd, *options.lease, mirror_file(state_dir),
                                              earlier_state_in_etcd(state_dir))
                          : open_sqlite_storage(own_state_file(state_dir));
  if (!storage.ok()) return storage.status();
  storage_ = *std::move(storage);
  auto epoch = storage_->begin_epoch();
  if (!epoch.ok()) return epoch.status();
  epoch_ = *epoch;
  return absl::OkStatus();
}

absl::Status ServerImpl::listen_http(const ServerOptions& options) {
  daemon::HttpOptions http{
      .pages = {{"/healthz", [this](const daemon::HttpReply& reply) { reply(health_page()); }},
                {"/readyz", [this](const daemon::HttpReply& reply) { ready_page(reply); }},
                {"/metrics", [this](const daemon::HttpReply& reply) { metrics_page(reply); }}},
      .rest =
          [this](const daemon::HttpRequest& request, const daemon::HttpReply& reply) {
            if (ready_) return web_->handle(request, reply);
            reply(error_response(absl::UnavailableError("the state is being loaded")));
          },
      .body_bytes_max = kWebBodyBytesMax,
      .connections_max = kHttpConnectionsMax,
      .ping_every = std::chrono::duration_cast<std::chrono::milliseconds>(options.ping_every)};
  auto tls = http_tls(options.trust);
  if (!tls.ok()) return tls.status();
  http.tls = *std::move(tls);
  auto server = daemon::HttpServer::start(options.http, std::move(http));
  if (!server.ok()) return server.status();
  http_ = *std::move(server);
  return absl::OkStatus();
}

void ServerImpl::serve_page(const ServerOptions& options, std::shared_ptr<Tokens> tokens) {
  hub_ = std::make_unique<EventHub>(*loop_, epoch_);
  hub_->start();
  const auto http = daemon::parse_endpoint("--http", options.http);
  web_ = std::make_unique<WebApi>(
      *loop_, *logs_, *hub_, pools_, shell_metrics_,
      WebApiOptions{
          .access = {.tokens = std::move(tokens),
                     .serves_strangers = options.insecure || options.trust.knows_callers(),
                     .is_on_loopback = http.ok() && daemon::is_loopback(*http),
                     .port = http_->port()},
          .has_tls = options.trust.has_tls(),
          .epoch = epoch_,
          .audit_log = audit_log_});
}

absl::Status ServerImpl::watch_policy(const std::string& path) {
  constexpr Duration kEvery = std::chrono::seconds(1);
  if (path.empty()) return absl::OkStatus();
  auto first = PolicyFile::read_or(path, stored_policy_, *shell_metrics_);
  if (!first.ok()) return first.status();
  policy_ = std::make_unique<PolicyFile>(
      path, *std::move(first), kEvery,
      [this](PolicyFile::Version version) {
        return loop_->set_policy(
            {.policy = std::move(version.policy), .text = std::move(version.text)});
      },
      shell_metrics_);
  return absl::OkStatus();
}

// A restart helps only if the loop is stuck. It does not help while the state is loaded, while the
// disk is full, or while the core is behind.
daemon::HttpResponse ServerImpl::health_page() const {
  const absl::Status status = ready_ ? loop_->check_alive(monotonic_now()) : absl::OkStatus();
  if (status.ok()) return {200, kText, "ok\n"};
  return {503, kText, absl::StrCat(status.message(), "\n")};
}

// The core must respond within the page's timeout to count as ready.
void ServerImpl::ready_page(const daemon::HttpReply& reply) {
  if (!ready_) return reply({503, kText, "the state is being loaded\n"});
  if (!GrpcPort::has_room())
    return reply(
        {503, kText, "the gRPC port takes no connections: too many descriptors are in use\n"});
  const absl::Status status = loop_->query([reply](const Core* core, Instant) {
    reply(core != nullptr ? daemon::HttpResponse{200, kText, "ready\n"}
                          : daemon::HttpResponse{503, kText, "the coordinator is stopping\n"});
  });
  if (!status.ok()) reply({503, kText, absl::StrCat(status.message(), "\n")});
}

// Shows jobs and workers only if the core is likely to answer in time. A page without them ends the
// history of their alerts, so it does not wait until the core has been in time for a while.
void ServerImpl::metrics_page(const daemon::HttpReply& reply) {
  constexpr const char* kMetricsText = "text/plain; version=0.0.4; charset=utf-8";
  if (!ready_) return reply({503, kText, "the state is being loaded\n"});
  // For the next page: a disk may stall.
  if (!reads_disk_.exchange(true)) {
    const bool is_posted = pools_.files.post([this] {
      shell_metrics_->read_disk();
      reads_disk_ = false;
    });
    if (!is_posted) reads_disk_ = false;
  }
  const LoopLoad load = loop_->load(monotonic_now());
  const bool is_shed = load.oldest_event_age >= daemon::kAnswerBudget;
  if (is_shed) shell_metrics_->count_shed("metrics");
  const std::string own = shell_metrics_->render(load);
  if (is_shed) return reply({200, kMetricsText, own});
  const absl::Status status = loop_->query([this, reply, own](const Core* core, Instant time) {
    if (core == nullptr) return reply({200, kMetricsText, own});
    reply({200, kMetricsText, metrics_->render(*core, time, wall_clock_unix_ns()) + own});
  });
  // A full disk or queue: the page without jobs and workers shows why.
  if (!status.ok()) reply({200, kMetricsText, own});
}

absl::Status ServerImpl::take_grpc_port(const daemon::Endpoint& endpoint) {
  auto port = GrpcPort::open(endpoint);
  if (!port.ok()) return port.status();
  port_ = *std::move(port);
  return absl::OkStatus();
}

absl::Status ServerImpl::serve_grpc(const ServerOptions& options,
                                    const std::shared_ptr<grpc::ServerCredentials>& credentials,
                                    std::shared_ptr<Tokens> tokens) {
  callers_ = std::make_unique<Callers>(std::move(tokens), audit_log_, options.ping_every);
  admin_ = std::make_unique<AdminService>(*loop_, shell_metrics_, *callers_,
                                          AdminFacts{.version = kVersion,
                                                     .epoch = epoch_,
                                                     .state_dir = options.state_dir,
                                                     .tls_cert = options.trust.tls_cert});
  muster_ = std::make_unique<MusterService>(*loop_, *logs_, shell_metrics_, *callers_);
  fleet_ = std::make_unique<FleetService>(*loop_, *logs_, shell_metrics_, *callers_, epoch_,
                                          options.registration_budget, port_->connections());
  grpc::EnableDefaultHealthCheckService(true);
#ifdef MUSTER_HAVE_GRPC_REFLECTION
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
#endif
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeBudgetMs);
  builder.AddChannelArgument(
      GRPC_ARG_MAX_CONNECTION_IDLE_MS,
      static_cast<int>(options.idle_connection / std::chrono::milliseconds(1)));
  // Clients of several coordinators ping each two seconds, to detect one that is stopped.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  // Heartbeats are small, so a connection needs no larger window than the default. The probes for
  // one would add a ping and two timers to most heartbeats.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // Channelz and its traces occupy several kilobytes per connection, and no page shows them.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CHANNEL_TRACE_EVENT_MEMORY_PER_NODE, 0);
  builder.AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, kReadBytes);
  builder.AddChannelArgument(GRPC_ARG_TSI_MAX_FRAME_SIZE, kTlsFrameBytes);
  // No answer is compressed, and the filter for it occupies memory of each call.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
  // No client compresses. gRPC limits a message's size only after it has expanded the message, so a
  // megabyte could occupy a gigabyte.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.SetMaxReceiveMessageSize(daemon::kMessageBytesMax);
  // Only server reflection uses gRPC's polling threads, so one thread is enough.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  auto connections = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  builder.RegisterService(admin_.get());
  builder.RegisterService(muster_.get());
  fleet_->add_to(builder);
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr) return absl::InternalError("gRPC could not be started");
  fleet_->serve();
  port_->serve(std::move(connections));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::start(const ServerOptions& options) {
  const auto listen = daemon::parse_endpoint("--listen", options.listen);
  if (!listen.ok()) return listen.status();
  const auto http = daemon::parse_endpoint("--http", options.http);
  if (!http.ok()) return http.status();
  absl::Status status = check_trust(options.trust, *listen, options.insecure);
  if (status.ok()) {
    status =
        daemon::check_open_exposure("--http", *http, options.insecure || options.trusted_network);
  }
  if (!status.ok()) return status;
  auto server = std::make_unique<ServerImpl>(options);
  const auto tokens = open_tokens(options.trust);
  if (!tokens.ok()) return exits_as(StartExit::kCertificate, tokens.status());
  const auto credentials =
      server_credentials(options.trust, *tokens, server->shell_metrics(), server->audit_log());
  if (!credentials.ok()) return exits_as(StartExit::kCertificate, credentials.status());
  // Binds the ports first, so that a failed start does not change the state.
  status = server->take_grpc_port(*listen);
  if (status.ok()) status = server->listen_http(options);
  if (!status.ok()) return exits_as(StartExit::kPort, status);
  status = server->open_state(options);
  if (status.ok()) status = server->watch_policy(options.queue_policy);
  if (status.ok()) status = server->serve_grpc(options, *credentials, *tokens);
  if (!status.ok()) return status;
  server->serve_page(options, *tokens);
  server->set_ready();
  return server;
}

}  // namespace muster::coordinator
