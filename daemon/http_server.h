// A small HTTP/1.1 server for a daemon's own pages: /metrics, /healthz, /readyz. GET only, one
// response per request, bounded requests, on its own thread (Boost.Beast over Boost.Asio).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

namespace muster::daemon {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Accepts a page's answer: once, on any thread, at once or later, also after the server is
// destroyed.
using HttpReply = std::function<void(HttpResponse response)>;

// Called on the server's thread, which serves every page: it must not block, but may store `reply`
// for later. The server answers 503 after 2 s without a reply.
using HttpHandler = std::function<void(const HttpReply& reply)>;

class HttpServer {
 public:
  // Listens on `address` ("127.0.0.1:9090"; port 0 picks a free one). Returns AlreadyExists with
  // the port and --http if it is in use.
  static absl::StatusOr<std::unique_ptr<HttpServer>> start(
      const std::string& address, std::map<std::string, HttpHandler> pages);
  // Stops listening and joins the thread.
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
};

}  // namespace muster::daemon
