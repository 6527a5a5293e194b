// One request of a client and the response to it. Used on the server's thread only.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace muster::serve {

struct HttpRequest {
  std::string method;
  std::string path;  // without the query
  bool has_body = false;
  std::string body;
};

// A complete response.
struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// Exactly one of reply() and begin_stream() is called, once. All functions do nothing after the
// client has left.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const HttpRequest& request() const = 0;
  virtual void reply(HttpReply reply) = 0;
  // Begins a response of server-sent events, whose length is not known.
  virtual void begin_stream() = 0;
  // Sends a part of the stream. Closes the connection if the client reads too slowly.
  virtual void send(std::string part) = 0;
  virtual void end_stream() = 0;
  // Sets the function that is called once if the client leaves before the response is complete.
  virtual void on_left(std::function<void()> left) = 0;
};

}  // namespace muster::serve
