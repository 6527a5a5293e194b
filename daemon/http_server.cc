#include "daemon/http_server.h"

#include <mutex>
#include <thread>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/error.hpp>

#include "daemon/endpoint.h"
#include "daemon/http_session.h"
#include "daemon/listen.h"

namespace muster::daemon {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using tcp = asio::ip::tcp;

class BeastServer : public HttpServer {
 public:
  explicit BeastServer(HttpOptions options) : options_(std::move(options)) {
    mailbox_->context = &context_;
  }

  ~BeastServer() override {
    {
      const std::lock_guard lock(mailbox_->mutex);
      mailbox_->context = nullptr;
    }
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status listen(const Endpoint& endpoint) {
    if (absl::Status status = listen_on("--http", endpoint, acceptor_); !status.ok()) return status;
    port_ = acceptor_.local_endpoint().port();
    return absl::OkStatus();
  }

  void run() {
    accept();
    thread_ = std::thread([this] { context_.run(); });
  }

  int port() const override { return port_; }

 private:
  void accept() {
    acceptor_.async_accept([this](beast::error_code error, tcp::socket socket) {
      if (error) {
        retry_.expires_after(kAcceptPause);
        retry_.async_wait([this](beast::error_code stopped) {
          if (!stopped) accept();
        });
        return;
      }
      if (sessions_.size() >= options_.connections_max) drop_one();
      const uint64_t number = next_session_++;
      const std::shared_ptr<void> slot(nullptr, [this, number](void*) { sessions_.erase(number); });
      const auto session = HttpSession::start(std::move(socket), options_, mailbox_, slot);
      sessions_[number] = session;
      accept();
    });
  }

  // Closes the oldest session that waits for its client's header, else for its client to read, else
  // for the rest of a body, else for a page.
  void drop_one() {
    for (const auto awaits : {HttpSession::Awaits::kHeader, HttpSession::Awaits::kReader,
                              HttpSession::Awaits::kBody, HttpSession::Awaits::kPage}) {
      for (const auto& [number, session] : sessions_) {
        const auto alive = session.lock();
        if (alive == nullptr || alive->awaits() != awaits) continue;
        alive->close();
        sessions_.erase(number);
        return;
      }
    }
  }

  const HttpOptions options_;
  const std::shared_ptr<HttpMailbox> mailbox_ = std::make_shared<HttpMailbox>();
  // The sessions, oldest first. They erase themselves, so this is declared before the context,
  // whose destruction ends them.
  std::map<uint64_t, std::weak_ptr<HttpSession>> sessions_;
  uint64_t next_session_ = 0;
  int port_ = 0;
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  asio::steady_timer retry_{context_};
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address,
                                                              HttpOptions options) {
  auto endpoint = parse_endpoint("--http", address);
  if (!endpoint.ok()) return endpoint.status();
  auto server = std::make_unique<BeastServer>(std::move(options));
  if (auto status = server->listen(*endpoint); !status.ok()) return status;
  server->run();
  return server;
}

}  // namespace muster::daemon
