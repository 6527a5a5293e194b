// A connection: reads requests one after another, within limits of size and time, and writes their
// responses. Used on the server's thread only; pending handlers keep a session alive.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/ip/tcp.hpp>

#include "serve/exchange.h"

namespace muster::serve {

// The limits of connections.
struct SessionLimits {
  size_t body_bytes = 2 << 20;
  std::chrono::milliseconds header = std::chrono::seconds(10);  // for a request's header
  std::chrono::milliseconds body = std::chrono::seconds(30);    // for its body
  std::chrono::milliseconds idle = std::chrono::seconds(75);    // until the next request
  // For a client that does not read its response.
  std::chrono::milliseconds write = std::chrono::seconds(30);
  // Maximum bytes of a stream that the client has not read.
  size_t unread_bytes = 1 << 20;
};

class Session {
 public:
  virtual ~Session() = default;

  // Answers a request: `handler` is called with each exchange. `admit` returns the reply to a
  // request whose header is not accepted, such as one without a key, before its body is read;
  // nullptr: it is accepted.
  struct Handlers {
    std::function<void(std::shared_ptr<Exchange>)> handle;
    std::function<std::unique_ptr<HttpReply>(const HttpRequest& request,
                                             const std::string& authorization)>
        admit;
  };

  // `slot` is released when the session ends. `handlers` and `limits` must outlive the session.
  static std::shared_ptr<Session> start(boost::asio::ip::tcp::socket socket,
                                        const Handlers& handlers, const SessionLimits& limits,
                                        std::shared_ptr<void> slot);

  // Returns whether the session waits for the header of a request.
  virtual bool waits_for_header() const = 0;
  virtual void close() = 0;
  // Closes the connection after the current response, or after the next one if there is none.
  virtual void close_after_response() = 0;
};

}  // namespace muster::serve
