// A connection of the HTTP server. Used on the server's thread. Pending handlers keep the session
// alive.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include "daemon/http_server.h"

namespace muster::daemon {

// Receives responses from any thread. Destroyed with the server.
struct HttpMailbox {
  std::mutex mutex;
  boost::asio::io_context* context = nullptr;

  template <class F>
  void post(F&& work) {
    const std::lock_guard lock(mutex);
    if (context != nullptr) boost::asio::post(*context, std::forward<F>(work));
  }
};

class HttpSession {
 public:
  // The event that the session waits for.
  enum class Awaits { kHeader, kBody, kPage, kReader, kNothing };

  virtual ~HttpSession() = default;

  // `slot` is released when the session ends. `options` must outlive the session.
  static std::shared_ptr<HttpSession> start(boost::asio::ip::tcp::socket socket,
                                            const HttpOptions& options,
                                            std::shared_ptr<HttpMailbox> mailbox,
                                            std::shared_ptr<void> slot);

  virtual Awaits awaits() const = 0;
  // Closes the connection. Its handlers end with an error.
  virtual void close() = 0;
};

}  // namespace muster::daemon
