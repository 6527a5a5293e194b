#include "daemon/http_server.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include <absl/strings/str_cat.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <spdlog/spdlog.h>

#include "daemon/endpoint.h"

namespace muster::daemon {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;

// Scrapers send a few hundred bytes; cookies and tracing headers of a browser fit.
constexpr size_t kHeaderBytesMax = 8 << 10;
// A client that takes longer for one request or response is stuck or hostile.
constexpr std::chrono::seconds kClientBudget{5};
// A few scrapers, a browser, health probes; more are left waiting in the kernel's backlog.
constexpr int kConnectionsMax = 64;
// When accept fails (out of descriptors), trying again at once would spin.
constexpr std::chrono::milliseconds kAcceptPause{100};

using Pages = std::map<std::string, HttpHandler>;

http::response<http::string_body> make_response(unsigned version, const HttpResponse& content) {
  http::response<http::string_body> response;
  response.version(version);
  response.result(static_cast<unsigned>(content.status));
  response.set(http::field::content_type, content.content_type);
  response.set(http::field::cache_control, "no-store");
  response.keep_alive(false);
  response.body() = content.body;
  response.prepare_payload();
  return response;
}

HttpResponse answer(const Pages& pages, const http::request<http::empty_body>& request) {
  const bool readable = request.method() == http::verb::get || request.method() == http::verb::head;
  if (!readable) return {405, "text/plain; charset=utf-8", "only GET is served here\n"};
  const auto target = request.target();
  std::string path(target.data(), target.size());
  path.erase(std::min(path.find('?'), path.size()));
  const auto page = pages.find(path);
  if (page != pages.end()) return page->second();
  std::string body = "not found; there are:";
  for (const auto& [name, handler] : pages) absl::StrAppend(&body, " ", name);
  return {404, "text/plain; charset=utf-8", body + "\n"};
}

// One request and its response, then the connection is closed. Keeps itself alive by the handlers
// that wait.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, const Pages& pages, std::shared_ptr<void> slot)
      : stream_(std::move(socket)), pages_(pages), slot_(std::move(slot)) {
    parser_.header_limit(kHeaderBytesMax);
    parser_.body_limit(0);
  }

  void run() {
    stream_.expires_after(kClientBudget);
    http::async_read_header(
        stream_, buffer_, parser_,
        [self = shared_from_this()](beast::error_code error, size_t) { self->on_read(error); });
  }

 private:
  void on_read(beast::error_code error) {
    if (error == http::error::header_limit) {
      respond(11, {431, "text/plain; charset=utf-8", "request header too large\n"});
    } else if (error.category() == http::make_error_code(http::error::bad_method).category() &&
               error != http::error::end_of_stream && error != http::error::partial_message) {
      respond(11, {400, "text/plain; charset=utf-8", "bad request\n"});
    } else if (!error) {
      respond(parser_.get().version(), answer(pages_, parser_.get()));
    }
  }

  void respond(unsigned version, const HttpResponse& content) {
    response_ = make_response(version, content);
    if (content.status == 405) response_.set(http::field::allow, "GET, HEAD");
    stream_.expires_after(kClientBudget);
    const auto done = [self = shared_from_this()](beast::error_code, size_t) {
      beast::error_code ignored;  // the client may have gone already
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    };
    if (parser_.get().method() == http::verb::head) {
      head_serializer_.emplace(response_);
      http::async_write_header(stream_, *head_serializer_, done);
    } else {
      http::async_write(stream_, response_, done);
    }
  }

  beast::tcp_stream stream_;
  const Pages& pages_;
  std::shared_ptr<void> slot_;
  beast::flat_buffer buffer_{2 * kHeaderBytesMax};
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> head_serializer_;
};

class BeastServer : public HttpServer {
 public:
  explicit BeastServer(Pages pages) : pages_(std::move(pages)) {}

  ~BeastServer() override {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status listen(const Endpoint& endpoint) {
    beast::error_code error;
    tcp::resolver resolver(context_);
    const auto found = resolver.resolve(endpoint.host, absl::StrCat(endpoint.port), error);
    if (error || found.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot resolve ", endpoint.to_string(), ": ", error.message()));
    }
    const tcp::endpoint address = found.begin()->endpoint();
    acceptor_.open(address.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(address, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error == asio::error::address_in_use) {
      return absl::AlreadyExistsError(absl::StrCat("port ", endpoint.port, " of ", endpoint.host,
                                                   " is in use by another program"));
    }
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("listening on ", endpoint.to_string(), ": ", error.message()));
    }
    port_ = acceptor_.local_endpoint(error).port();
    return absl::OkStatus();
  }

  void run() {
    accept();
    thread_ = std::thread([this] { context_.run(); });
  }

  int port() const override { return port_; }

 private:
  void accept() {
    if (connections_ >= kConnectionsMax) {
      accept_paused_ = true;
      return;
    }
    acceptor_.async_accept([this](beast::error_code error, tcp::socket socket) {
      if (error) {
        retry_.expires_after(kAcceptPause);
        retry_.async_wait([this](beast::error_code stopped) {
          if (!stopped) accept();
        });
        return;
      }
      ++connections_;
      const std::shared_ptr<void> slot(nullptr, [this](void*) { on_closed(); });
      std::make_shared<Session>(std::move(socket), pages_, slot)->run();
      accept();
    });
  }

  void on_closed() {
    --connections_;
    if (!accept_paused_ || context_.stopped()) return;
    accept_paused_ = false;
    asio::post(context_, [this] { accept(); });
  }

  const Pages pages_;
  // Counted by the sessions, so declared before the context whose destruction ends them.
  int connections_ = 0;
  bool accept_paused_ = false;
  int port_ = 0;
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  asio::steady_timer retry_{context_};
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::start(
    const std::string& address, std::map<std::string, HttpHandler> pages) {
  auto endpoint = parse_endpoint("--http", address);
  if (!endpoint.ok()) return endpoint.status();
  auto server = std::make_unique<BeastServer>(std::move(pages));
  if (auto status = server->listen(*endpoint); !status.ok()) return status;
  server->run();
  return server;
}

}  // namespace muster::daemon
