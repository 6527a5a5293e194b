// The HTTP server's connection with Boost.Beast: http_session.cc reads requests and writes
// responses, http_stream.cc responses without an end.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "daemon/http_session.h"
#include "daemon/http_socket.h"

namespace muster::daemon {

// The maximum size of a request's header. Scrapers send a few hundred bytes; a browser's cookies
// and tracing headers fit, too.
constexpr size_t kHeaderBytesMax = 8 << 10;
// The time limit for a request's header. A slower client is stuck or hostile.
constexpr std::chrono::seconds kHeaderBudget{2};
// The time limit for a body, which may be a job's config from far away, and for the next request of
// a browser that keeps its connection.
constexpr std::chrono::seconds kBodyBudget{20};
constexpr std::chrono::seconds kIdleBudget{30};

class BeastSession final : public HttpSession, public std::enable_shared_from_this<BeastSession> {
 public:
  BeastSession(boost::asio::ip::tcp::socket socket, const HttpOptions& options,
               std::shared_ptr<HttpMailbox> mailbox, std::shared_ptr<void> slot);

  Awaits awaits() const override { return awaits_; }
  void close() override;
  void begin();

  // Methods of a response without an end.
  void send(std::shared_ptr<const std::string> part);
  void end_stream();

 private:
  using Error = boost::beast::error_code;

  // http_session.cc
  void shake_hands();
  void read_header();
  void on_header(Error error);
  void call_page(const HttpHandler& page);
  void refuse_unknown();
  std::string too_large() const;
  void read_body();
  void on_body(Error error);
  HttpReply await_reply(std::chrono::seconds budget);
  void take(uint64_t number, HttpResponse response);
  void respond(HttpResponse content);
  void write_some();
  void end_response();
  void finish();
  void drain();
  void close_after(std::chrono::seconds budget);

  // http_stream.cc
  void open_stream(HttpResponse content);
  std::shared_ptr<HttpSink> make_sink();
  void ping_later();
  void write_part();
  void on_part_sent();

  HttpSocket socket_;
  const HttpOptions& options_;
  std::shared_ptr<HttpMailbox> mailbox_;
  std::shared_ptr<void> slot_;
  // For a reply, for the next ping of a stream, or for the client's end.
  boost::asio::steady_timer waiting_;
  bool is_from_here_ = false;
  std::string peer_;
  Awaits awaits_ = Awaits::kHeader;
  boost::beast::flat_buffer buffer_{2 * kHeaderBytesMax};
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  HttpRequest request_;
  uint64_t requests_ = 0;
  bool answered_ = false;
  bool closes_ = true;       // after the response
  bool shuts_down_ = false;  // TLS's end is being exchanged, which reads, too
  std::shared_ptr<const std::string> body_;
  using Body = boost::beast::http::span_body<const char>;
  std::optional<boost::beast::http::response<Body>> response_;
  std::optional<boost::beast::http::response_serializer<Body>> serializer_;
  std::array<char, 4096> ignored_bytes_{};
  // A response without an end:
  bool is_open_ = false;
  bool is_ending_ = false;
  std::deque<std::shared_ptr<const std::string>> unsent_;
  size_t part_sent_ = 0;  // bytes of the first unsent part
  size_t unsent_bytes_ = 0;
  std::shared_ptr<HttpSource> source_;
};

}  // namespace muster::daemon
