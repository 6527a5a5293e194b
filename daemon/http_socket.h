// A connection with or without TLS, for Boost.Beast's operations: an AsyncReadStream and an
// AsyncWriteStream. Used on one thread.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/tcp_stream.hpp>

namespace muster::daemon {

class HttpSocket {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;

  explicit HttpSocket(boost::asio::ip::tcp::socket socket) : tcp_(std::move(socket)) {}

  executor_type get_executor() { return tcp_.get_executor(); }
  boost::beast::tcp_stream& tcp() { return tcp_; }
  bool is_secure() const { return tls_.has_value(); }

  // Performs the server's handshake. `received`: bytes that were read already.
  template <class Buffers, class Handler>
  void async_handshake(std::shared_ptr<boost::asio::ssl::context> context, const Buffers& received,
                       Handler&& handler) {
    context_ = std::move(context);
    tls_.emplace(tcp_, *context_);
    tls_->async_handshake(boost::asio::ssl::stream_base::server, received,
                          std::forward<Handler>(handler));
  }
  // Sends TLS's notice of the end. Requires is_secure().
  template <class Handler>
  void async_shutdown(Handler&& handler) {
    tls_->async_shutdown(std::forward<Handler>(handler));
  }

  template <class Buffers, class Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Handler>(handler));
    tcp_.async_read_some(buffers, std::forward<Handler>(handler));
  }
  template <class Buffers, class Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Handler>(handler));
    tcp_.async_write_some(buffers, std::forward<Handler>(handler));
  }

 private:
  boost::beast::tcp_stream tcp_;
  std::shared_ptr<boost::asio::ssl::context> context_;
  std::optional<boost::asio::ssl::stream<boost::beast::tcp_stream&>> tls_;
};

}  // namespace muster::daemon
