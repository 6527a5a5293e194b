#include "serve/listener.h"

#include <algorithm>
#include <utility>

#include "daemon/endpoint.h"
#include "daemon/listen.h"

namespace muster::serve {

using tcp = boost::asio::ip::tcp;

Listener::Listener(boost::asio::io_context& context, const Session::Handlers& handlers,
                   const SessionLimits& limits, size_t connections_max)
    : handlers_(handlers),
      limits_(limits),
      connections_max_(connections_max),
      acceptor_(context),
      retry_(context) {}

absl::Status Listener::listen(const std::string& address) {
  const auto endpoint = daemon::parse_endpoint("--listen", address);
  if (!endpoint.ok()) return endpoint.status();
  if (auto status = daemon::listen_on("--listen", *endpoint, acceptor_); !status.ok())
    return status;
  port_ = acceptor_.local_endpoint().port();
  accept();
  return absl::OkStatus();
}

void Listener::accept() {
  acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
    if (error == boost::asio::error::operation_aborted) return;
    if (error) {
      retry_.expires_after(daemon::kAcceptPause);
      retry_.async_wait([this](boost::system::error_code stopped) {
        if (!stopped) accept();
      });
      return;
    }
    // Without room, the new connection is closed.
    if (sessions_->size() < connections_max_ || close_oldest_idle()) {
      const uint64_t number = next_session_++;
      const std::shared_ptr<void> slot(nullptr,
                                       [weak = std::weak_ptr<Sessions>(sessions_), number](void*) {
                                         if (const auto sessions = weak.lock())
                                           sessions->erase(number);
                                       });
      boost::system::error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      const auto session = Session::start(std::move(socket), handlers_, limits_, slot);
      if (draining_) session->close_after_response();
      (*sessions_)[number] = session;
    }
    accept();
  });
}

bool Listener::close_oldest_idle() {
  for (const auto& [number, weak] : *sessions_) {
    const auto session = weak.lock();
    if (session == nullptr || !session->waits_for_header()) continue;
    session->close();
    return true;
  }
  return false;
}

void Listener::drain() {
  draining_ = true;
  for (const auto& session : sessions()) session->close_after_response();
}

bool Listener::is_idle() const {
  return std::ranges::all_of(sessions(),
                             [](const auto& session) { return session->waits_for_header(); });
}

Listener::~Listener() {
  for (const auto& session : sessions()) session->close();
}

std::vector<std::shared_ptr<Session>> Listener::sessions() const {
  std::vector<std::shared_ptr<Session>> all;
  for (const auto& [number, weak] : *sessions_) {
    if (auto session = weak.lock()) all.push_back(std::move(session));
  }
  return all;
}

}  // namespace muster::serve
