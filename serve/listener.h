// Accepts connections. Used on the server's thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "serve/session.h"

namespace muster::serve {

class Listener {
 public:
  // All references must outlive the listener.
  Listener(boost::asio::io_context& context, const Session::Handlers& handlers,
           const SessionLimits& limits, size_t connections_max);
  // Closes all connections.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Listens on `address` ("127.0.0.1:8000"; port 0 picks a free port).
  absl::Status listen(const std::string& address);
  int port() const { return port_; }
  size_t connections() const { return sessions_->size(); }
  // Closes each connection after its next response.
  void drain();
  // Returns whether no connection has a request.
  bool is_idle() const;

 private:
  void accept();
  std::vector<std::shared_ptr<Session>> sessions() const;
  // Closes the oldest connection that waits for a request. Returns false if all have one.
  bool close_oldest_idle();

  const Session::Handlers& handlers_;
  const SessionLimits& limits_;
  size_t connections_max_;
  // Oldest first. Sessions erase themselves, and may live longer than the listener.
  using Sessions = std::map<uint64_t, std::weak_ptr<Session>>;
  std::shared_ptr<Sessions> sessions_ = std::make_shared<Sessions>();
  bool draining_ = false;
  uint64_t next_session_ = 0;
  int port_ = 0;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer retry_;
};

}  // namespace muster::serve
