// Requests to a handler of all paths: bodies, streams, slow clients and TLS.
#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>
#include <boost/asio/ssl/stream.hpp>
#include <gtest/gtest.h>

#include "daemon/http_server.h"
#include "tests/unit/certificates.h"
#include "tests/unit/daemon/http_client.h"
#include "tests/unit/temp_folder.h"

namespace muster::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A server whose handler answers every request with what it has read.
class HttpRequestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = HttpServer::start(
        "127.0.0.1:0",
        {.rest =
             [this](const HttpRequest& request, const HttpReply& reply) {
               if (request.path == "/stream") return open(reply);
               reply({200, "text/plain",
                      absl::StrCat(request.method, " ", request.path, " ", request.query, " ",
                                   std::string(request.header("x-name")), " ", request.body,
                                   request.is_from_here ? "!" : "?")});
             },
         .body_bytes_max = 100});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  void open(const HttpReply& reply) {
    struct Source : HttpSource {
      explicit Source(std::promise<void>& left) : left_(left) {}
      ~Source() override { left_.set_value(); }
      std::promise<void>& left_;
    };
    HttpResponse response{.content_type = "text/event-stream"};
    response.open = [this](std::shared_ptr<HttpSink> sink) {
      sink_.set_value(std::move(sink));
      return std::make_shared<Source>(left_);
    };
    reply(std::move(response));
  }

  std::string exchange(const std::string& request) {
    Client client(server_->port());
    client.send(request);
    return client.receive();
  }

  std::promise<std::shared_ptr<HttpSink>> sink_;
  std::promise<void> left_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpRequestTest, ARequestIsReadAndTheConnectionStaysOpen) {
  const std::string request =
      "POST /a?b=c HTTP/1.1\r\nX-Name: n\r\nX-NAME: m\r\nContent-Length: 4\r\n\r\nbody";
  const std::string last = "GET /last HTTP/1.1\r\nConnection: close\r\n\r\n";
  const std::string answers = exchange(request + request + last);
  EXPECT_THAT(answers, HasSubstr("\r\n\r\nPOST /a b=c n, m body!HTTP/1.1 200"));
  EXPECT_THAT(answers, ::testing::EndsWith("GET /last   !"));
}

TEST_F(HttpRequestTest, ALargeOrDamagedBodyIsRefused) {
  EXPECT_THAT(exchange("POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n"),
              StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(exchange("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
              StartsWith("HTTP/1.1 400"));
}

// A server that closed with unread bytes destroyed its response on the way.
TEST_F(HttpRequestTest, AClientThatSendsTooMuchReadsTheRefusal) {
  const std::string body(size_t{9} << 20, 'x');
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(exchange(absl::StrCat("POST / HTTP/1.1\r\nContent-Length: ", body.size(),
                                      "\r\n\r\n", body)),
                StartsWith("HTTP/1.1 413"));
  }
}

TEST_F(HttpRequestTest, PeersThatVanishAreFound) {
  Client client(server_->port());
  client.send("GET /stream HTTP/1.1\r\n\r\n");
  sink_.get_future().get();
  EXPECT_EQ(client.option_of_server(SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(client.option_of_server(IPPROTO_TCP, TCP_KEEPIDLE), 30);
  EXPECT_EQ(client.option_of_server(IPPROTO_TCP, TCP_USER_TIMEOUT), 60'000);
}

TEST_F(HttpRequestTest, EndsWithOpenStreams) {
  Client client(server_->port());
  client.send("GET /stream HTTP/1.1\r\n\r\n");
  const auto sink = sink_.get_future().get();
  std::atomic<bool> is_over{false};
  std::thread sender([&] {
    const auto part = std::make_shared<const std::string>("part");
    while (!is_over) sink->send(part);
  });
  EXPECT_THAT(client.receive(256), StartsWith("HTTP/1.1 200"));
  server_.reset();
  left_.get_future().get();
  client.receive();
  is_over = true;
  sender.join();
  sink->end();
}

TEST_F(HttpRequestTest, AStreamEndsWithItsClientOrItsSource) {
  {
    Client client(server_->port());
    client.send("GET /stream HTTP/1.1\r\n\r\n");
    const auto sink = sink_.get_future().get();
    sink->send(std::make_shared<const std::string>("part"));
    sink->end();
    EXPECT_THAT(client.receive(), ::testing::EndsWith("\r\n\r\npart"));
    left_.get_future().get();
  }
  sink_ = {};
  left_ = {};
  auto client = std::make_unique<Client>(server_->port());
  client->send("GET /stream HTTP/1.1\r\n\r\n");
  const auto sink = sink_.get_future().get();
  client.reset();
  left_.get_future().get();
  sink->send(std::make_shared<const std::string>("to no client"));
}

TEST_F(HttpRequestTest, AClientThatDoesNotReadIsDisconnected) {
  Client client(server_->port());
  client.send("GET /stream HTTP/1.1\r\n\r\n");
  const auto sink = sink_.get_future().get();
  auto left = left_.get_future();
  const auto part = std::make_shared<const std::string>(size_t{1} << 20, 'x');
  size_t sent = 0;
  for (; sent < 256 && left.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready;
       ++sent)
    sink->send(part);
  EXPECT_LT(sent, 256U);
  EXPECT_GE(sent, kUnsentBytesMax >> 20);
}

// Servers with the options of each test.
class HttpOptionsTest : public ::testing::Test {
 protected:
  void start(HttpOptions options) {
    auto server = HttpServer::start("127.0.0.1:0", std::move(options));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  static HttpRequestHandler answer(const std::string& body) {
    return [shared = std::make_shared<const std::string>(body)](
               const HttpRequest&, const HttpReply& reply) { reply({.shared_body = shared}); };
  }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpOptionsTest, ASlowLinkReceivesALargeResponse) {
  const std::string body(size_t{32} << 20, 'x');
  start({.rest = answer(body), .client_budget = std::chrono::seconds(2)});
  Client client(server_->port());
  client.send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  // Takes longer than the time in which the client must take something.
  std::string text;
  for (int i = 0; i < 30; ++i) {
    text += client.receive(size_t{1} << 20);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  text += client.receive();
  EXPECT_THAT(text, ::testing::EndsWith("xx"));
  EXPECT_EQ(text.size() - text.find("\r\n\r\n") - 4, body.size());
}

TEST_F(HttpOptionsTest, AClientThatTakesNothingIsDisconnected) {
  start({.rest = answer(std::string(size_t{32} << 20, 'x')),
         .client_budget = std::chrono::milliseconds(300)});
  Client client(server_->port());
  client.send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  for (int i = 0; i < 400 && client.option_of_server(SOL_SOCKET, SO_KEEPALIVE) >= 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  EXPECT_EQ(client.option_of_server(SOL_SOCKET, SO_KEEPALIVE), -1);
}

TEST_F(HttpOptionsTest, SourcesArePinged) {
  struct Source : HttpSource {
    explicit Source(std::shared_ptr<HttpSink> to) : sink(std::move(to)) {}
    void on_ping() override {
      sink->send(std::make_shared<const std::string>("ping\n"));
      if (++pings == 3) sink->end();
    }
    std::shared_ptr<HttpSink> sink;
    int pings = 0;
  };
  start({.rest =
             [](const HttpRequest&, const HttpReply& reply) {
               HttpResponse response;
               response.open = [](std::shared_ptr<HttpSink> sink) {
                 return std::make_shared<Source>(std::move(sink));
               };
               reply(std::move(response));
             },
         .ping_every = std::chrono::milliseconds(20)});
  Client client(server_->port());
  client.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.receive(), ::testing::EndsWith("\r\n\r\nping\nping\nping\n"));
}

TEST_F(HttpOptionsTest, IdleConnectionsMakeRoomBeforeUploads) {
  start({.rest = answer("done"), .body_bytes_max = 100, .connections_max = 4});
  Client upload(server_->port());
  upload.send("POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 4\r\n\r\n");
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 12; ++i) {
    idle.push_back(std::make_unique<Client>(server_->port()));
    idle.back()->send("GET / HTTP/1.1\r\n\r\n");
    EXPECT_THAT(idle.back()->receive(20), StartsWith("HTTP/1.1 200"));
  }
  upload.send("body");
  EXPECT_THAT(upload.receive(), ::testing::EndsWith("done"));
  // The newest connections are kept for further requests.
  idle.back()->send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(idle.back()->receive(), ::testing::EndsWith("done"));
}

// One port with and without TLS.
class HttpTlsTest : public HttpOptionsTest {
 protected:
  void SetUp() override {
    const auto pair = authority_.sign("IP:127.0.0.1");
    write_file(folder_.file("crt"), pair.certificate);
    write_file(folder_.file("key"), pair.key);
    auto tls = TlsFiles::open({.certificate = folder_.file("crt"), .key = folder_.file("key")});
    ASSERT_TRUE(tls.ok()) << tls.status();
    start({.rest =
               [](const HttpRequest& request, const HttpReply& reply) {
                 reply({.body = request.is_secure ? "secure" : "plain"});
               },
           .body_bytes_max = 100,
           .tls = *std::move(tls)});
  }

  // Returns the response to a request within TLS.
  std::string exchange(const std::string& request) {
    boost::asio::io_context context;
    boost::asio::ssl::context tls(boost::asio::ssl::context::tls_client);
    const std::string authority = authority_.certificate();
    tls.add_certificate_authority(boost::asio::buffer(authority));
    tls.set_verify_mode(boost::asio::ssl::verify_peer);
    boost::asio::ssl::stream<tcp::socket> stream(context, tls);
    stream.next_layer().connect(
        {boost::asio::ip::address_v4::loopback(), static_cast<uint16_t>(server_->port())});
    boost::system::error_code error;
    stream.handshake(boost::asio::ssl::stream_base::client, error);
    if (error) return error.message();
    boost::asio::write(stream, boost::asio::buffer(request), error);
    std::string text;
    boost::asio::read(stream, boost::asio::dynamic_buffer(text), error);
    return text;
  }

  TempFolder folder_;
  TestAuthority authority_;
};

TEST_F(HttpTlsTest, TheFirstByteDecides) {
  EXPECT_THAT(exchange("GET / HTTP/1.1\r\nConnection: close\r\n\r\n"),
              ::testing::EndsWith("secure"));
  Client plain(server_->port());
  plain.send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(plain.receive(), ::testing::EndsWith("plain"));
}

TEST_F(HttpTlsTest, ALargeBodyIsRefused) {
  EXPECT_THAT(
      exchange("POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + std::string(1'000'000, 'x')),
      StartsWith("HTTP/1.1 413"));
}

TEST_F(HttpTlsTest, AHandshakeThatDoesNotEndIsCutOff) {
  Client silent(server_->port());
  Client begins(server_->port());
  // The header of a ClientHello's record.
  begins.send(std::string("\x16\x03\x01\x02\x00\x01\x00", 7));
  EXPECT_EQ(silent.receive(), "");
  EXPECT_EQ(begins.receive(), "");
  EXPECT_THAT(exchange("GET / HTTP/1.1\r\nConnection: close\r\n\r\n"),
              ::testing::EndsWith("secure"));
}

}  // namespace
}  // namespace muster::daemon
