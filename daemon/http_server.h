// A small HTTP/1.1 server for a daemon's pages: /metrics, /healthz and /readyz. Supports GET only,
// and bounds the size of requests. Runs on its own thread (Boost.Beast over Boost.Asio).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

namespace muster::daemon {

// The time limit for the response of a page, after which the server sends 503. The probes of
// helm/muster must wait longer.
constexpr std::chrono::seconds kAnswerBudget{2};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Sends the response of a page. Called once, on any thread, during the handler or later, even after
// the server is destroyed.
using HttpReply = std::function<void(HttpResponse response)>;

// Handles a request for a page. Called on the server's thread, which serves every page: the handler
// must not block, but may store `reply` for later. The server responds with 503 after
// kAnswerBudget without a reply.
using HttpHandler = std::function<void(const HttpReply& reply)>;

class HttpServer {
 public:
  // Listens on `address` ("127.0.0.1:9090"; port 0 picks a free port). Returns AlreadyExists, with
  // the port and --http, if the port is in use.
  static absl::StatusOr<std::unique_ptr<HttpServer>> start(
      const std::string& address, std::map<std::string, HttpHandler> pages);
  // Stops listening and joins the thread.
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
};

}  // namespace muster::daemon
