// The coordinator's gRPC port. Accepts connections and passes them to gRPC, because gRPC's own
// listener (observed in 1.51) closes its port permanently and without an error after accept has
// failed for lack of descriptors.
//
// Closes connections that would use the last descriptors, which are reserved for the state, the
// logs and the HTTP pages.
#pragma once

#include <memory>
#include <thread>

#include <absl/status/statusor.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <grpcpp/grpcpp.h>

#include "common/time/time.h"
#include "coordinator/shell/grpc/unread.h"
#include "daemon/endpoint.h"

namespace muster::coordinator {

class GrpcPort {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // Binds the port. Connections wait until serve() is called. Errors name --listen.
  static absl::StatusOr<std::unique_ptr<GrpcPort>> open(const daemon::Endpoint& endpoint);
  // Stops accepting. Destroy the port before the shutdown of the gRPC server, because connections
  // that arrive later would be lost.
  ~GrpcPort();

  int port() const { return acceptor_.local_endpoint().port(); }

  // Starts to accept. Call once, after the server that owns `grpc` has started.
  void serve(std::unique_ptr<Acceptor> grpc);

  // Returns the accepted connections.
  std::shared_ptr<const OpenConnections> connections() const { return connections_; }

  // Returns whether a new connection would be accepted. Thread-safe.
  static bool has_room();

 private:
  void accept();
  void take(boost::asio::ip::tcp::socket socket);
  void log_problem(const std::string& why);

  boost::asio::io_context context_{1};
  boost::asio::ip::tcp::acceptor acceptor_{context_};
  boost::asio::steady_timer retry_{context_};
  std::unique_ptr<Acceptor> grpc_;
  std::shared_ptr<OpenConnections> connections_ = std::make_shared<OpenConnections>();
  Instant logged_at_{};
  std::thread thread_;
};

}  // namespace muster::coordinator
