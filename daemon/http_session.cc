#include "daemon/http_session.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "daemon/http_socket.h"

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
// The time limit for a body, which may be a job's config from far away, and for the next request of
// a browser that keeps its connection.
constexpr std::chrono::seconds kBodyBudget{20};
constexpr std::chrono::seconds kIdleBudget{30};

constexpr const char* kPlain = "text/plain; charset=utf-8";

bool is_malformed(beast::error_code error) {
  return error.category() == http::make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

class BeastSession final : public HttpSession, public std::enable_shared_from_this<BeastSession> {
 public:
  BeastSession(tcp::socket socket, const HttpOptions& options, std::shared_ptr<HttpMailbox> mailbox,
               std::shared_ptr<void> slot)
      : socket_(std::move(socket)),
        options_(options),
        mailbox_(std::move(mailbox)),
        slot_(std::move(slot)),
        waiting_(socket_.get_executor()) {
    beast::error_code ignored;
    const auto remote = socket_.tcp().socket().remote_endpoint(ignored);
    is_from_here_ = !ignored && remote.address().is_loopback();
    socket_.tcp().socket().set_option(tcp::no_delay(true), ignored);
  }

  Awaits awaits() const override { return awaits_; }
  void close() override {
    waiting_.cancel();
    socket_.tcp().close();
    source_.reset();
  }

  void begin() {
    socket_.tcp().expires_after(kHeaderBudget);
    if (options_.tls == nullptr) return read_header();
    beast::async_detect_ssl(socket_.tcp(), buffer_,
                            [self = shared_from_this()](beast::error_code error, bool is_tls) {
                              if (error) return;
                              if (is_tls) return self->shake_hands();
                              self->read_header();
                            });
  }

  void send(std::shared_ptr<const std::string> part) {
    if (!is_open_ || part->empty()) return;
    unsent_bytes_ += part->size();
    unsent_.push_back(std::move(part));
    if (unsent_bytes_ > kUnsentBytesMax) return close();
    if (unsent_.size() == 1) write_part();
  }
  void end_stream() {
    is_ending_ = true;
    if (is_open_ && unsent_.empty()) finish();
  }

 private:
  void shake_hands() {
    socket_.async_handshake(options_.tls->context(monotonic_now()), buffer_.data(),
                            [self = shared_from_this()](beast::error_code error, size_t used) {
                              if (error) return;
                              self->buffer_.consume(used);
                              self->read_header();
                            });
  }

  void read_header() {
    awaits_ = Awaits::kHeader;
    parser_.emplace();
    parser_->header_limit(kHeaderBytesMax);
    parser_->body_limit(options_.body_bytes_max);
    http::async_read_header(
        socket_, buffer_, *parser_,
        [self = shared_from_this()](beast::error_code error, size_t) { self->on_header(error); });
  }

  void on_header(beast::error_code error) {
    closes_ = true;
    if (error == http::error::header_limit)
      return respond({431, kPlain, "request header too large\n"});
    // The parser refuses the length of a body before the body arrives.
    if (error == http::error::body_limit && options_.body_bytes_max > 0)
      return respond({413, kPlain, too_large()});
    if (is_malformed(error)) return respond({400, kPlain, "bad request\n"});
    if (error) return;
    const auto target = parser_->get().target();
    request_ = {};
    request_.path.assign(target.data(), target.size());
    if (const size_t mark = request_.path.find('?'); mark != std::string::npos) {
      request_.query = request_.path.substr(mark + 1);
      request_.path.erase(mark);
    }
    const auto page = options_.pages.find(request_.path);
    if (page != options_.pages.end()) return call_page(page->second);
    if (options_.rest == nullptr) return refuse_unknown();
    closes_ = !parser_->get().keep_alive();
    read_body();
  }

  static bool is_read(http::verb method) {
    return method == http::verb::get || method == http::verb::head;
  }

  void call_page(const HttpHandler& page) {
    if (!is_read(parser_->get().method()))
      return respond({405, kPlain, "only GET is served here\n", {{"Allow", "GET, HEAD"}}});
    page(await_reply(kAnswerBudget));
  }

  void refuse_unknown() {
    if (!is_read(parser_->get().method()))
      return respond({405, kPlain, "only GET is served here\n", {{"Allow", "GET, HEAD"}}});
    std::string body = "not found; there are:";
    for (const auto& [name, handler] : options_.pages) absl::StrAppend(&body, " ", name);
    respond({404, kPlain, body + "\n"});
  }

  std::string too_large() const {
    return absl::StrCat("the body is larger than ", options_.body_bytes_max,
                        " bytes, the limit of this server\n");
  }

  void read_body() {
    socket_.tcp().expires_after(kBodyBudget);
    if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      parser_->get().erase(http::field::expect);
      asio::async_write(socket_, asio::buffer(kContinue.data(), kContinue.size()),
                        [self = shared_from_this()](beast::error_code error, size_t) {
                          if (!error) self->read_body();
                        });
      return;
    }
    http::async_read(
        socket_, buffer_, *parser_,
        [self = shared_from_this()](beast::error_code error, size_t) { self->on_body(error); });
  }

  void on_body(beast::error_code error) {
    if (error) closes_ = true;
    if (error == http::error::body_limit) return respond({413, kPlain, too_large()});
    if (is_malformed(error)) return respond({400, kPlain, "bad request\n"});
    if (error) return;
    auto& message = parser_->get();
    const auto method = message.method_string();
    request_.method.assign(method.data(), method.size());
    for (const auto& field : message) {
      std::string name(field.name_string().data(), field.name_string().size());
      std::string& value = request_.headers[absl::AsciiStrToLower(name)];
      absl::StrAppend(&value, value.empty() ? "" : ", ",
                      absl::string_view(field.value().data(), field.value().size()));
    }
    request_.body = std::move(message.body());
    request_.is_secure = socket_.is_secure();
    request_.is_from_here = is_from_here_;
    options_.rest(request_, await_reply(kRequestBudget));
  }

  // The timer keeps the session alive; a stored reply does not, and may be called after the
  // session's end.
  HttpReply await_reply(std::chrono::seconds budget) {
    awaits_ = Awaits::kPage;
    answered_ = false;
    const uint64_t number = ++requests_;
    socket_.tcp().expires_never();
    waiting_.expires_after(budget);
    waiting_.async_wait([self = shared_from_this(), number](beast::error_code error) {
      if (!error) self->take(number, {503, kPlain, "this page takes too long; try again\n"});
    });
    return [mailbox = mailbox_, waiter = weak_from_this(), number](HttpResponse response) {
      mailbox->post([waiter, number, response = std::move(response)]() mutable {
        if (const auto self = waiter.lock()) self->take(number, std::move(response));
      });
    };
  }

  void take(uint64_t number, HttpResponse response) {
    if (number != requests_ || std::exchange(answered_, true)) return;
    waiting_.cancel();
    respond(std::move(response));
  }

  void respond(HttpResponse content) {
    awaits_ = Awaits::kReader;
    socket_.tcp().expires_after(kClientBudget);
    if (const auto complete = std::move(content.complete)) complete(content);
    if (content.open != nullptr) return open_stream(std::move(content));
    body_ = content.shared_body != nullptr
                ? std::move(content.shared_body)
                : std::make_shared<const std::string>(std::move(content.body));
    response_.emplace();
    response_->version(parser_->get().version());
    response_->result(static_cast<unsigned>(content.status));
    response_->set(http::field::content_type, content.content_type);
    response_->set(http::field::cache_control, "no-store");
    for (const auto& [name, value] : content.headers) response_->set(name, value);
    response_->keep_alive(!closes_);
    response_->body() = beast::span<const char>(body_->data(), body_->size());
    const bool has_no_body = content.status == 304 || content.status == 204;
    if (!has_no_body) response_->content_length(body_->size());
    serializer_.emplace(*response_);
    const auto done = [self = shared_from_this()](beast::error_code error, size_t) {
      if (!error) self->end_response();
    };
    if (parser_->get().method() == http::verb::head || has_no_body) {
      http::async_write_header(socket_, *serializer_, done);
    } else {
      http::async_write(socket_, *serializer_, done);
    }
  }

  void end_response() {
    if (closes_) return finish();
    socket_.tcp().expires_after(kIdleBudget);
    read_header();
  }

  // Ends the connection after the last response.
  void finish() {
    if (std::exchange(is_open_, false)) close_after(kHeaderBudget);
    source_.reset();
    if (!socket_.is_secure()) {
      beast::error_code ignored;  // the client may be gone already
      socket_.tcp().socket().shutdown(tcp::socket::shutdown_send, ignored);
      return;
    }
    socket_.tcp().expires_after(kHeaderBudget);
    socket_.async_shutdown([self = shared_from_this()](beast::error_code) {});
  }

  // The client of an ended stream may stay connected.
  void close_after(std::chrono::seconds budget) {
    waiting_.expires_after(budget);
    waiting_.async_wait([self = shared_from_this()](beast::error_code error) {
      if (!error) self->close();
    });
  }

  void open_stream(HttpResponse content) {
    std::string header =
        absl::StrCat("HTTP/1.1 200 OK\r\nContent-Type: ", content.content_type, "\r\n");
    for (const auto& [name, value] : content.headers)
      absl::StrAppend(&header, name, ": ", value, "\r\n");
    absl::StrAppend(&header, "Cache-Control: no-store\r\nConnection: close\r\n\r\n");
    awaits_ = Awaits::kNothing;
    is_open_ = true;
    // The time limits of writes do not apply to the pending read.
    socket_.tcp().expires_never();
    watch_client();
    send(std::make_shared<const std::string>(std::move(header)));
    if (parser_->get().method() == http::verb::head) return end_stream();
    source_ = content.open(make_sink());
  }

  std::shared_ptr<HttpSink> make_sink();

  // A client of a stream sends nothing more; the read ends when it leaves.
  void watch_client() {
    socket_.async_read_some(asio::buffer(ignored_bytes_),
                            [self = shared_from_this()](beast::error_code error, size_t) {
                              if (!self->is_open_) return;
                              if (error) return self->close();
                              self->watch_client();
                            });
  }

  void write_part() {
    socket_.tcp().expires_after(kClientBudget);
    asio::async_write(socket_, asio::buffer(*unsent_.front()),
                      [self = shared_from_this()](beast::error_code error, size_t) {
                        if (error) return self->close();
                        self->on_part_sent();
                      });
  }
  void on_part_sent() {
    socket_.tcp().expires_never();
    unsent_bytes_ -= unsent_.front()->size();
    unsent_.pop_front();
    if (!unsent_.empty()) return write_part();
    if (is_ending_) return finish();
    if (source_ != nullptr) source_->on_sent();
  }

  HttpSocket socket_;
  const HttpOptions& options_;
  std::shared_ptr<HttpMailbox> mailbox_;
  std::shared_ptr<void> slot_;
  asio::steady_timer waiting_;
  bool is_from_here_ = false;
  Awaits awaits_ = Awaits::kHeader;
  beast::flat_buffer buffer_{2 * kHeaderBytesMax};
  std::optional<http::request_parser<http::string_body>> parser_;
  HttpRequest request_;
  uint64_t requests_ = 0;
  bool answered_ = false;
  bool closes_ = true;  // after the response
  std::shared_ptr<const std::string> body_;
  std::optional<http::response<http::span_body<const char>>> response_;
  std::optional<http::response_serializer<http::span_body<const char>>> serializer_;
  // A response without an end:
  bool is_open_ = false;
  bool is_ending_ = false;
  std::deque<std::shared_ptr<const std::string>> unsent_;
  size_t unsent_bytes_ = 0;
  std::shared_ptr<HttpSource> source_;
  std::array<char, 64> ignored_bytes_{};
};

class SessionSink final : public HttpSink {
 public:
  SessionSink(std::weak_ptr<BeastSession> session, std::shared_ptr<HttpMailbox> mailbox)
      : session_(std::move(session)), mailbox_(std::move(mailbox)) {}

  void send(std::shared_ptr<const std::string> part) override {
    mailbox_->post([session = session_, part = std::move(part)] {
      if (const auto self = session.lock()) self->send(part);
    });
  }
  void end() override {
    mailbox_->post([session = session_] {
      if (const auto self = session.lock()) self->end_stream();
    });
  }

 private:
  const std::weak_ptr<BeastSession> session_;
  const std::shared_ptr<HttpMailbox> mailbox_;
};

std::shared_ptr<HttpSink> BeastSession::make_sink() {
  return std::make_shared<SessionSink>(weak_from_this(), mailbox_);
}

}  // namespace

std::shared_ptr<HttpSession> HttpSession::start(tcp::socket socket, const HttpOptions& options,
                                                std::shared_ptr<HttpMailbox> mailbox,
                                                std::shared_ptr<void> slot) {
  const auto session = std::make_shared<BeastSession>(std::move(socket), options,
                                                      std::move(mailbox), std::move(slot));
  session->begin();
  return session;
}

}  // namespace muster::daemon
