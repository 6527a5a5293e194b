// A small HTTP/1.1 server for a daemon's pages: /metrics, /healthz, /readyz, and the coordinator's
// page. Bounds the size of requests, their times, and the number of connections. Runs on its own
// thread (Boost.Beast over Boost.Asio).
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "daemon/http_message.h"
#include "daemon/tls_files.h"

namespace muster::daemon {

// The time limit for the response of a page, after which the server sends 503. The probes of
// helm/muster must wait longer.
constexpr std::chrono::seconds kAnswerBudget{2};
// The same for other requests: reading the stacks of a job takes seconds.
constexpr std::chrono::seconds kRequestBudget{30};

struct HttpOptions {
  // Served to GET requests without reading anything else than their paths. The connection is closed
  // after the response.
  std::map<std::string, HttpHandler> pages = {};
  // Handles all other requests, of any method; null: they are refused.
  HttpRequestHandler rest = nullptr;
  size_t body_bytes_max = 0;  // the limit for requests to `rest`
  // A few scrapers, a browser and health probes. A further connection takes the place of the one
  // that has waited longest for its client, so that clients who send or read nothing cannot keep
  // probes out. Responses without an end keep their places.
  size_t connections_max = 64;
  // The time limit for each part of a response that the client's system accepts. It bounds no whole
  // response, so that a slow link receives large ones.
  std::chrono::milliseconds client_budget{5'000};
  // How often HttpSource::on_ping() is called.
  std::chrono::milliseconds ping_every{15'000};
  // If set, the same port also speaks TLS: the first byte of a connection decides.
  std::shared_ptr<TlsFiles> tls = nullptr;
};

class HttpServer {
 public:
  // Listens on `address` ("127.0.0.1:9090"; port 0 picks a free port). Returns AlreadyExists, with
  // the port and --http, if the port is in use.
  static absl::StatusOr<std::unique_ptr<HttpServer>> start(const std::string& address,
                                                           HttpOptions options);
  // Stops listening and joins the thread.
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
};

}  // namespace muster::daemon
