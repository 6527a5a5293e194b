// The coordinator's gRPC port. Connections are accepted here and handed to gRPC, whose own listener (seen in 1.51) gives
// its port up for good, and silently, once accept has failed for want of descriptors.
//
// Connections that would take the last descriptors are closed at once: those are for the state, the logs and the pages.
#pragma once

#include <memory>
#include <thread>

#include <absl/status/statusor.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <grpcpp/grpcpp.h>

#include "common/time.h"
#include "daemon/endpoint.h"

namespace muster::coordinator {

class GrpcPort {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // Takes the port; who connects waits until serve(). The error names --listen.
  static absl::StatusOr<std::unique_ptr<GrpcPort>> open(const daemon::Endpoint& endpoint);
  // Ends serving. Before the gRPC server's shutdown, which would leave a connection that comes then to nobody.
  ~GrpcPort();

  int port() const { return acceptor_.local_endpoint().port(); }

  // Call once, when the server that `grpc` belongs to has been started.
  void serve(std::unique_ptr<Acceptor> grpc);

  // Whether a connection that came now would be taken. From any thread.
  static bool has_room();

 private:
  void accept();
  void take(boost::asio::ip::tcp::socket socket);
  void complain(const std::string& why);

  boost::asio::io_context context_{1};
  boost::asio::ip::tcp::acceptor acceptor_{context_};
  boost::asio::steady_timer retry_{context_};
  std::unique_ptr<Acceptor> grpc_;
  Instant complained_{};
  std::thread thread_;
};

}  // namespace muster::coordinator
