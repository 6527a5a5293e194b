#include "daemon/http_server.h"

#include <algorithm>
#include <chrono>
#include <mutex>
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
#include "daemon/listen.h"

namespace muster::daemon {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;

// The maximum size of a request's header. Scrapers send a few hundred bytes; a browser's cookies
// and tracing headers fit, too.
constexpr size_t kHeaderBytesMax = 8 << 10;
// The time limit for a request's header, and then for its response. A slower client is stuck or
// hostile.
constexpr std::chrono::seconds kHeaderBudget{2};
constexpr std::chrono::seconds kClientBudget{5};
// The maximum number of connections: a few scrapers, a browser and health probes. A further
// connection takes the place of the one that has waited longest for its client, so that clients who
// send or read nothing cannot keep probes out.
constexpr size_t kConnectionsMax = 64;

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

// Receives responses from any thread. Destroyed with the server.
struct Mailbox {
  std::mutex mutex;
  asio::io_context* context = nullptr;

  template <class F>
  void post(F&& work) {
    const std::lock_guard lock(mutex);
    if (context != nullptr) asio::post(*context, std::forward<F>(work));
  }
};

void answer(const Pages& pages, const http::request<http::empty_body>& request,
            const HttpReply& reply) {
  const bool readable = request.method() == http::verb::get || request.method() == http::verb::head;
  if (!readable) return reply({405, "text/plain; charset=utf-8", "only GET is served here\n"});
  const auto target = request.target();
  std::string path(target.data(), target.size());
  path.erase(std::min(path.find('?'), path.size()));
  const auto page = pages.find(path);
  if (page != pages.end()) return page->second(reply);
  std::string body = "not found; there are:";
  for (const auto& [name, handler] : pages) absl::StrAppend(&body, " ", name);
  reply({404, "text/plain; charset=utf-8", body + "\n"});
}

// A connection for one request and its response, after which it is closed. Pending handlers keep
// the session alive.
class Session : public std::enable_shared_from_this<Session> {
 public:
  // The event that the session waits for.
  enum class Awaits { kHeader, kPage, kReader };

  Session(tcp::socket socket, const Pages& pages, std::shared_ptr<Mailbox> mailbox,
          std::shared_ptr<void> slot)
      : stream_(std::move(socket)),
        pages_(pages),
        mailbox_(std::move(mailbox)),
        slot_(std::move(slot)),
        waiting_(stream_.get_executor()) {
    parser_.header_limit(kHeaderBytesMax);
    parser_.body_limit(0);
  }

  Awaits awaits() const { return awaits_; }

  // Closes the connection. Its handlers end with an error.
  void close() { stream_.close(); }

  void run() {
    stream_.expires_after(kHeaderBudget);
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
      call_page();
    }
  }

  // Calls the page's handler. The timer keeps the session alive; a stored reply does not, and may
  // be called after the session's end.
  void call_page() {
    awaits_ = Awaits::kPage;
    waiting_.expires_after(kAnswerBudget);
    waiting_.async_wait([self = shared_from_this()](beast::error_code error) {
      if (!error)
        self->take({503, "text/plain; charset=utf-8", "this page takes too long; try again\n"});
    });
    answer(pages_, parser_.get(),
           [mailbox = mailbox_, waiter = weak_from_this()](HttpResponse response) {
             mailbox->post([waiter, response = std::move(response)] {
               if (const auto self = waiter.lock()) self->take(response);
             });
           });
  }

  void take(const HttpResponse& response) {
    if (std::exchange(answered_, true)) return;
    waiting_.cancel();
    respond(parser_.get().version(), response);
  }

  void respond(unsigned version, const HttpResponse& content) {
    awaits_ = Awaits::kReader;
    response_ = make_response(version, content);
    if (content.status == 405) response_.set(http::field::allow, "GET, HEAD");
    stream_.expires_after(kClientBudget);
    const auto done = [self = shared_from_this()](beast::error_code, size_t) {
      beast::error_code ignored;  // the client may be gone already
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
  std::shared_ptr<Mailbox> mailbox_;
  std::shared_ptr<void> slot_;
  asio::steady_timer waiting_;
  bool answered_ = false;
  Awaits awaits_ = Awaits::kHeader;
  beast::flat_buffer buffer_{2 * kHeaderBytesMax};
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> head_serializer_;
};

class BeastServer : public HttpServer {
 public:
  explicit BeastServer(Pages pages) : pages_(std::move(pages)) { mailbox_->context = &context_; }

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
      if (sessions_.size() >= kConnectionsMax) drop_one();
      const uint64_t number = next_session_++;
      const std::shared_ptr<void> slot(nullptr, [this, number](void*) { sessions_.erase(number); });
      const auto session = std::make_shared<Session>(std::move(socket), pages_, mailbox_, slot);
      sessions_[number] = session;
      session->run();
      accept();
    });
  }

  // Closes the oldest session that waits for its client's header, else for its client to read, else
  // for a page.
  void drop_one() {
    for (const auto awaits :
         {Session::Awaits::kHeader, Session::Awaits::kReader, Session::Awaits::kPage}) {
      for (const auto& [number, session] : sessions_) {
        const auto alive = session.lock();
        if (alive == nullptr || alive->awaits() != awaits) continue;
        alive->close();
        sessions_.erase(number);
        return;
      }
    }
  }

  const Pages pages_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  // The sessions, oldest first. They erase themselves, so this is declared before the context,
  // whose destruction ends them.
  std::map<uint64_t, std::weak_ptr<Session>> sessions_;
  uint64_t next_session_ = 0;
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
