#include "serve/session.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "serve/api_error.h"

namespace muster::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;

// The maximum size of a request's header: clients send a few hundred bytes, proxies add to them.
constexpr size_t kHeaderBytesMax = 16 << 10;

class BeastSession;

// An exchange of a session, which may end before.
class SessionExchange : public Exchange {
 public:
  SessionExchange(std::weak_ptr<BeastSession> session, HttpRequest request)
      : session_(std::move(session)), request_(std::move(request)) {}

  const HttpRequest& request() const override { return request_; }
  void reply(HttpReply reply) override;
  void begin_stream() override;
  void send(std::string part) override;
  void end_stream() override;
  void on_left(std::function<void()> left) override { left_ = std::move(left); }

  // Called by the session.
  void leave() {
    session_.reset();
    if (const auto left = std::exchange(left_, nullptr)) left();
  }
  void complete() {
    session_.reset();
    left_ = nullptr;
  }

 private:
  std::weak_ptr<BeastSession> session_;
  HttpRequest request_;
  std::function<void()> left_;
};

class BeastSession : public Session, public std::enable_shared_from_this<BeastSession> {
 public:
  BeastSession(tcp::socket socket, const Handlers& handlers, const SessionLimits& limits,
               std::shared_ptr<void> slot)
      : stream_(std::move(socket)),
        watch_(stream_.get_executor()),
        handlers_(handlers),
        limits_(limits),
        slot_(std::move(slot)) {}
  ~BeastSession() override {
    if (exchange_ != nullptr) exchange_->leave();
  }

  bool waits_for_header() const override { return waits_for_header_; }
  void close() override {
    stream_.close();
    client_left();
  }
  void close_after_response() override { closing_ = true; }

  void read_header(std::chrono::milliseconds within) {
    waits_for_header_ = true;
    parser_.emplace();
    parser_->header_limit(kHeaderBytesMax);
    parser_->body_limit(limits_.body_bytes);
    stream_.expires_after(within);
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](beast::error_code error, size_t) { self->on_header(error); });
  }

  void write_reply(HttpReply reply) {
    const auto response = std::make_shared<http::response<http::string_body>>();
    response->version(parser_->get().version());
    response->result(static_cast<unsigned>(reply.status));
    response->set(http::field::content_type, reply.content_type);
    response->set(http::field::cache_control, "no-store");
    for (const auto& [name, value] : reply.headers) response->set(name, value);
    keep_alive_ = keep_alive_ && !closing_;
    response->keep_alive(keep_alive_);
    response->content_length(reply.body.size());
    if (parser_->get().method() != http::verb::head) response->body() = std::move(reply.body);
    stream_.expires_after(limits_.write);
    http::async_write(stream_, *response,
                      [self = shared_from_this(), response](beast::error_code error, size_t) {
                        self->end_response(error);
                      });
  }

  void begin_stream() {
    chunked_ = parser_->get().version() == 11;
    keep_alive_ = keep_alive_ && chunked_ && !closing_;
    queue(absl::StrCat("HTTP/1.", chunked_ ? 1 : 0,
                       " 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n",
                       chunked_ ? "Transfer-Encoding: chunked\r\n" : "",
                       keep_alive_ ? "" : "Connection: close\r\n", "\r\n"));
  }
  void send(const std::string& part) {
    if (part.empty()) return;
    queue(chunked_ ? absl::StrCat(absl::Hex(part.size()), "\r\n", part, "\r\n") : part);
  }
  void end_stream() {
    stream_ended_ = true;
    queue(chunked_ ? "0\r\n\r\n" : "");
  }

 private:
  void on_header(beast::error_code error) {
    waits_for_header_ = false;
    if (error) return on_bad_request(error);
    const auto& header = parser_->get();
    const auto target = header.target();
    std::string path(target.data(), target.size());
    path.erase(std::min(path.find('?'), path.size()));
    const auto method = header.method_string();
    const auto length = parser_->content_length();
    const bool has_body = parser_->chunked() || length.value_or(0) > 0;
    request_ = {std::string(method.data(), method.size()), std::move(path), has_body, ""};
    keep_alive_ = header.keep_alive();
    const auto authorization = header[http::field::authorization];
    auto refused =
        handlers_.admit(request_, std::string(authorization.data(), authorization.size()));
    if (refused != nullptr) return refuse(std::move(*refused));
    if (length && *length > limits_.body_bytes) return refuse(too_large());
    if (beast::iequals(header[http::field::expect], "100-continue")) return write_continue();
    read_body();
  }

  HttpReply too_large() const {
    const ApiError error{.status = 413,
                         .message = absl::StrCat("the body is larger than ", limits_.body_bytes,
                                                 " bytes, the limit of this server")};
    return {.status = error.status, .body = error.body()};
  }

  void on_bad_request(beast::error_code error) {
    ApiError answer{.status = 400, .message = absl::StrCat("malformed HTTP: ", error.message())};
    if (error == http::error::header_limit) {
      answer = {.status = 431,
                .message = absl::StrCat("the header is larger than ", kHeaderBytesMax, " bytes")};
    } else if (error == http::error::body_limit) {
      return refuse(too_large());
    } else if (error == beast::error::timeout || error == http::error::end_of_stream ||
               error == http::error::partial_message ||
               error.category() != http::make_error_code(http::error::bad_method).category()) {
      return;  // the client has left, or is too slow
    }
    refuse({.status = answer.status, .body = answer.body()});
  }

  // Answers without reading the rest of the request. The rest is then unusable, so the connection
  // is closed.
  void refuse(HttpReply reply) {
    keep_alive_ = false;
    write_reply(std::move(reply));
  }

  // curl waits for this before it sends a large body.
  void write_continue() {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    stream_.expires_after(limits_.write);
    asio::async_write(stream_, asio::buffer(kContinue.data(), kContinue.size()),
                      [self = shared_from_this()](beast::error_code error, size_t) {
                        if (!error) self->read_body();
                      });
  }

  void read_body() {
    stream_.expires_after(limits_.body);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code error, size_t) {
                       if (error) return self->on_bad_request(error);
                       self->handle();
                     });
  }

  void handle() {
    request_.body = std::move(parser_->get().body());
    stream_.expires_never();
    if (!watch_client()) {
      const ApiError error{.status = 503, .message = "the server has too many open files"};
      return refuse({.status = error.status, .body = error.body()});
    }
    exchange_ = std::make_shared<SessionExchange>(weak_from_this(), std::move(request_));
    active_ = shared_from_this();
    handlers_.handle(exchange_);
  }

  // Waits for the client to close the connection. Uses a second descriptor, so that the wait can be
  // ended without other operations of the socket. Returns false if there is none.
  bool watch_client() {
    beast::error_code error;
    const int descriptor = dup(stream_.socket().native_handle());
    if (descriptor < 0) return false;
    watch_.assign(descriptor, error);
    if (error) {
      ::close(descriptor);
      return false;
    }
    watch_.async_wait(asio::posix::stream_descriptor::wait_read,
                      [self = shared_from_this()](beast::error_code failed) {
                        if (!failed) self->on_readable();
                      });
    return true;
  }
  void on_readable() {
    if (exchange_ == nullptr || !watch_.is_open()) return;
    char byte = 0;
    const ssize_t count = recv(watch_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    const bool left = count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
    if (left) return close();
    end_watch();  // the next request; it is read after the response
  }
  void end_watch() {
    beast::error_code ignored;
    if (watch_.is_open()) watch_.close(ignored);
  }
  void client_left() {
    end_watch();
    const auto self = std::exchange(active_, nullptr);
    if (const auto exchange = std::exchange(exchange_, nullptr)) exchange->leave();
  }

  void queue(const std::string& bytes) {
    unsent_ += bytes;
    // A client that does not read must not fill the memory.
    if (unsent_.size() > limits_.unread_bytes) return close();
    if (!writing_) write_unsent();
  }
  void write_unsent() {
    if (unsent_.empty()) {
      if (stream_ended_) end_response({});
      return;
    }
    writing_ = true;
    sending_ = std::exchange(unsent_, "");
    stream_.expires_after(limits_.write);
    asio::async_write(stream_, asio::buffer(sending_),
                      [self = shared_from_this()](beast::error_code error, size_t) {
                        self->writing_ = false;
                        if (error) return self->close();
                        self->stream_.expires_never();
                        self->write_unsent();
                      });
  }

  void end_response(beast::error_code error) {
    end_watch();
    stream_ended_ = false;
    if (error) return close();
    active_ = nullptr;
    if (const auto exchange = std::exchange(exchange_, nullptr)) exchange->complete();
    if (keep_alive_ && !closing_) return read_header(limits_.idle);
    // Reads what the client still sends, so that it receives the response before a reset.
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(limits_.header);
    drain();
  }
  void drain() {
    drained_.resize(kHeaderBytesMax);
    stream_.async_read_some(asio::buffer(drained_),
                            [self = shared_from_this()](beast::error_code error, size_t count) {
                              self->drained_bytes_ += count;
                              const bool done = self->drained_bytes_ > 4 * self->limits_.body_bytes;
                              if (!error && !done) self->drain();
                            });
  }

  beast::tcp_stream stream_;
  asio::posix::stream_descriptor watch_;
  const Handlers& handlers_;
  const SessionLimits& limits_;
  std::shared_ptr<void> slot_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  HttpRequest request_;
  std::shared_ptr<SessionExchange> exchange_;  // null: no request is being answered
  std::shared_ptr<BeastSession> active_;       // this, while a request is being answered
  bool waits_for_header_ = false;
  bool keep_alive_ = false;
  bool closing_ = false;
  // A response of events:
  bool chunked_ = false;
  bool stream_ended_ = false;
  bool writing_ = false;
  std::string unsent_;
  std::string sending_;
  // After the last response:
  std::string drained_;
  size_t drained_bytes_ = 0;
};

void SessionExchange::reply(HttpReply reply) {
  if (const auto session = session_.lock()) session->write_reply(std::move(reply));
}
void SessionExchange::begin_stream() {
  if (const auto session = session_.lock()) session->begin_stream();
}
void SessionExchange::send(std::string part) {
  if (const auto session = session_.lock()) session->send(part);
}
void SessionExchange::end_stream() {
  if (const auto session = session_.lock()) session->end_stream();
}

}  // namespace

std::shared_ptr<Session> Session::start(tcp::socket socket, const Handlers& handlers,
                                        const SessionLimits& limits, std::shared_ptr<void> slot) {
  auto session =
      std::make_shared<BeastSession>(std::move(socket), handlers, limits, std::move(slot));
  session->read_header(limits.header);
  return session;
}

}  // namespace muster::serve
