#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <boost/asio/write.hpp>

#include "daemon/beast_session.h"

namespace muster::daemon {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;

// A peer that vanished (a laptop that sleeps) is found after a silence of 30 s by three probes, or
// when it has acknowledged nothing for a minute.
constexpr int kKeepAliveIdleSeconds = 30;
constexpr int kKeepAliveEverySeconds = 10;
constexpr int kKeepAliveProbes = 3;
constexpr int kUnacknowledgedMs = 60'000;
// The time in which a client reads the last response. What it still sends is read, because closing
// a connection with unread bytes would destroy the response.
constexpr std::chrono::seconds kEndBudget{2};

constexpr const char* kPlain = "text/plain; charset=utf-8";

bool is_malformed(beast::error_code error) {
  return error.category() == http::make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

bool is_read(http::verb method) { return method == http::verb::get || method == http::verb::head; }

void set_option(int socket, int level, int name, int value) {
  // Without the option the connection works.
  (void)setsockopt(socket, level, name, &value, sizeof(value));
}

}  // namespace

BeastSession::BeastSession(tcp::socket socket, const HttpOptions& options,
                           std::shared_ptr<HttpMailbox> mailbox, std::shared_ptr<void> slot)
    : socket_(std::move(socket)),
      options_(options),
      mailbox_(std::move(mailbox)),
      slot_(std::move(slot)),
      waiting_(socket_.get_executor()) {
  beast::error_code ignored;
  const auto remote = socket_.tcp().socket().remote_endpoint(ignored);
  is_from_here_ = !ignored && remote.address().is_loopback();
  if (!ignored) peer_ = remote.address().to_string();
  const int handle = socket_.tcp().socket().native_handle();
  set_option(handle, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(handle, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(handle, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  set_option(handle, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveEverySeconds);
  set_option(handle, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  set_option(handle, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMs);
}

void BeastSession::close() {
  waiting_.cancel();
  socket_.tcp().close();
  source_.reset();
}

void BeastSession::begin() {
  socket_.tcp().expires_after(kHeaderBudget);
  if (options_.tls == nullptr) return read_header();
  beast::async_detect_ssl(socket_.tcp(), buffer_,
                          [self = shared_from_this()](beast::error_code error, bool is_tls) {
                            if (error) return;
                            if (is_tls) return self->shake_hands();
                            self->read_header();
                          });
}

void BeastSession::shake_hands() {
  socket_.async_handshake(options_.tls->context(monotonic_now()), buffer_.data(),
                          [self = shared_from_this()](beast::error_code error, size_t used) {
                            if (error) return;
                            self->buffer_.consume(used);
                            self->read_header();
                          });
}

void BeastSession::read_header() {
  awaits_ = Awaits::kHeader;
  parser_.emplace();
  parser_->header_limit(kHeaderBytesMax);
  parser_->body_limit(options_.body_bytes_max);
  http::async_read_header(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](beast::error_code error, size_t) { self->on_header(error); });
}

void BeastSession::on_header(beast::error_code error) {
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

void BeastSession::call_page(const HttpHandler& page) {
  if (!is_read(parser_->get().method()))
    return respond({405, kPlain, "only GET is served here\n", {{"Allow", "GET, HEAD"}}});
  page(await_reply(kAnswerBudget));
}

void BeastSession::refuse_unknown() {
  if (!is_read(parser_->get().method()))
    return respond({405, kPlain, "only GET is served here\n", {{"Allow", "GET, HEAD"}}});
  std::string body = "not found; there are:";
  for (const auto& [name, handler] : options_.pages) absl::StrAppend(&body, " ", name);
  respond({404, kPlain, body + "\n"});
}

std::string BeastSession::too_large() const {
  return absl::StrCat("the body is larger than ", options_.body_bytes_max,
                      " bytes, the limit of this server\n");
}

void BeastSession::read_body() {
  awaits_ = Awaits::kBody;
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

void BeastSession::on_body(beast::error_code error) {
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
  request_.peer = peer_;
  options_.rest(request_, await_reply(kRequestBudget));
}

// The timer keeps the session alive; a stored reply does not, and may be called after the
// session's end.
HttpReply BeastSession::await_reply(std::chrono::seconds budget) {
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

void BeastSession::take(uint64_t number, HttpResponse response) {
  if (number != requests_ || std::exchange(answered_, true)) return;
  waiting_.cancel();
  respond(std::move(response));
}

void BeastSession::respond(HttpResponse content) {
  awaits_ = Awaits::kReader;
  socket_.tcp().expires_after(options_.client_budget);
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
  if (parser_->get().method() != http::verb::head && !has_no_body) return write_some();
  http::async_write_header(socket_, *serializer_,
                           [self = shared_from_this()](beast::error_code error, size_t) {
                             if (!error) self->end_response();
                           });
}

void BeastSession::write_some() {
  socket_.tcp().expires_after(options_.client_budget);
  http::async_write_some(socket_, *serializer_,
                         [self = shared_from_this()](beast::error_code error, size_t) {
                           if (error) return;
                           if (!self->serializer_->is_done()) return self->write_some();
                           self->end_response();
                         });
}

void BeastSession::end_response() {
  if (closes_) return finish();
  socket_.tcp().expires_after(kIdleBudget);
  read_header();
}

// Ends the connection after the last response. The client may stay connected, or may not have sent
// all of its request.
void BeastSession::finish() {
  const bool was_stream = std::exchange(is_open_, false);
  const bool has_unread = !was_stream && !parser_->is_done();
  source_.reset();
  awaits_ = Awaits::kHeader;
  close_after(kEndBudget);
  if (!socket_.is_secure()) {
    beast::error_code ignored;  // the client may be gone already
    socket_.tcp().socket().shutdown(tcp::socket::shutdown_send, ignored);
  } else if (!has_unread) {
    shuts_down_ = true;
    return socket_.async_shutdown(
        [self = shared_from_this()](beast::error_code) { self->close(); });
  }
  if (!was_stream) drain();
}

// Reads and ignores what the client sends until it leaves.
void BeastSession::drain() {
  socket_.tcp().expires_never();
  socket_.async_read_some(asio::buffer(ignored_bytes_),
                          [self = shared_from_this()](beast::error_code error, size_t) {
                            if (self->shuts_down_) return;
                            if (error) return self->close();
                            self->drain();
                          });
}

void BeastSession::close_after(std::chrono::seconds budget) {
  waiting_.expires_after(budget);
  waiting_.async_wait([self = shared_from_this()](beast::error_code error) {
    if (!error) self->close();
  });
}

std::shared_ptr<HttpSession> HttpSession::start(tcp::socket socket, const HttpOptions& options,
                                                std::shared_ptr<HttpMailbox> mailbox,
                                                std::shared_ptr<void> slot) {
  const auto session = std::make_shared<BeastSession>(std::move(socket), options,
                                                      std::move(mailbox), std::move(slot));
  session->begin();
  return session;
}

}  // namespace muster::daemon
