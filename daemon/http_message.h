// Requests and responses of the daemons' HTTP server (http_server.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::daemon {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // as it was sent, without the query: "/api/v1/jobs/7"
  std::string query;   // as it was sent, without the question mark
  // By their names in lower case. A header that is sent twice has both values, with a comma.
  std::map<std::string, std::string> headers;
  std::string body;
  bool is_secure = false;     // within TLS
  bool is_from_here = false;  // from a loopback address
  std::string peer = {};      // the client's address: "10.0.0.5"

  // Returns the value of a header, whose name is in lower case; "" if it is missing.
  std::string_view header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : std::string_view(found->second);
  }
};

// The body of a response without an end, such as server-sent events. Thread-safe. Does nothing once
// the client has left.
class HttpSink {
 public:
  virtual ~HttpSink() = default;
  // Sends a part. Closes the connection if the client reads too slowly: more than kUnsentBytesMax
  // wait for it.
  virtual void send(std::shared_ptr<const std::string> part) = 0;
  // Ends the response after all parts.
  virtual void end() = 0;
};
// The maximum number of bytes that wait for a client: some snapshots of a large fleet.
constexpr size_t kUnsentBytesMax = 8 << 20;

// Produces a response without an end. Destroyed on the server's thread when the client has left or
// the response has ended.
class HttpSource {
 public:
  virtual ~HttpSource() = default;
  // Called on the server's thread once all parts have been sent to the client.
  virtual void on_sent() {}
  // Called on the server's thread every HttpOptions::ping_every.
  virtual void on_ping() {}
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  // Further headers. Cache-Control is "no-store" unless it is one of them.
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Replaces `body`: a body that several responses share.
  std::shared_ptr<const std::string> shared_body = nullptr;
  // If set, the response has no end: called on the server's thread when the header is sent.
  std::function<std::shared_ptr<HttpSource>(std::shared_ptr<HttpSink> sink)> open = nullptr;
};

// Sends the response of a page. Called once, on any thread, during the handler or later, even after
// the server is destroyed.
using HttpReply = std::function<void(HttpResponse response)>;

// Handles a request for a page. Called on the server's thread, which serves every page: the handler
// must not block, but may store `reply` for later. The server responds with 503 after the time
// limit without a reply.
using HttpHandler = std::function<void(const HttpReply& reply)>;
// The same for a handler that reads the request.
using HttpRequestHandler = std::function<void(const HttpRequest& request, const HttpReply& reply)>;

}  // namespace muster::daemon
