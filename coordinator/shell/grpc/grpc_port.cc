#include "coordinator/shell/grpc/grpc_port.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

#include "daemon/listen.h"

namespace muster::coordinator {
namespace {

using boost::asio::ip::tcp;

// The descriptors reserved for connections to the HTTP pages, the state, and the files of ranks'
// logs.
constexpr rlim_t kDescriptorsKept = 400;
// The maximum number of descriptors in use: enough for a hundred thousand workers and
// their watchers. A connection occupies tens of kilobytes.
constexpr rlim_t kDescriptorsMax = 262'144;
constexpr Duration kLogInterval = std::chrono::seconds(10);

// Returns the first descriptor number that gRPC's connections may not use; the kernel assigns the
// lowest free one.
int descriptor_bound() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t open_max = std::min(limit.rlim_cur, kDescriptorsMax);
  return static_cast<int>(open_max - std::min(kDescriptorsKept, open_max / 4));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcPort>> GrpcPort::open(const daemon::Endpoint& endpoint) {
  auto port = std::make_unique<GrpcPort>();
  if (absl::Status status = daemon::listen_on("--listen", endpoint, port->acceptor_); !status.ok())
    return status;
  return port;
}

GrpcPort::~GrpcPort() {
  context_.stop();
  if (thread_.joinable()) thread_.join();
}

void GrpcPort::serve(std::unique_ptr<Acceptor> grpc) {
  grpc_ = std::move(grpc);
  accept();
  thread_ = std::thread([this] { context_.run(); });
}

bool GrpcPort::has_room() {
  const int next = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
  if (next >= 0) close(next);
  return next >= 0 && next < descriptor_bound();
}

void GrpcPort::accept() {
  acceptor_.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
    if (!error) {
      take(std::move(socket));
      accept();
      return;
    }
    log_problem(absl::StrCat("accepting a connection: ", error.message()));
    retry_.expires_after(daemon::kAcceptPause);
    retry_.async_wait([this](const boost::system::error_code& stopped) {
      if (!stopped) accept();
    });
  });
}

void GrpcPort::take(tcp::socket socket) {
  if (const int bound = descriptor_bound(); socket.native_handle() >= bound) {
    log_problem(absl::StrCat("a connection is refused: about ", bound, " descriptors are in use"));
    return;
  }
  boost::system::error_code error;  // the client may be gone already; gRPC detects that, too
  socket.set_option(tcp::no_delay(true), error);
  // As on the worker's side (worker/shell/stream/thin_streams.h): a lost packet is retransmitted
  // without growing delays.
  const int on = 1;
  (void)setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
  socket.native_non_blocking(true, error);
  connections_->add(socket.native_handle());
  Acceptor::NewConnectionParameters connection;
  connection.fd = socket.release(error);
  if (!error) grpc_->HandleNewConnection(&connection);
}

void GrpcPort::log_problem(const std::string& why) {
  const Instant now = monotonic_now();
  if (logged_at_ != Instant{} && now - logged_at_ < kLogInterval) return;
  logged_at_ = now;
  spdlog::warn("the gRPC port: {}", why);
}

}  // namespace muster::coordinator
