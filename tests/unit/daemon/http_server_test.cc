#include "daemon/http_server.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

namespace muster::daemon {
namespace {

using boost::asio::ip::tcp;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Client {
 public:
  explicit Client(int port) {
    socket_.connect({boost::asio::ip::address_v4::loopback(), static_cast<uint16_t>(port)});
  }

  void send(const std::string& text) {
    boost::system::error_code ignored;  // the server may have answered and closed already
    boost::asio::write(socket_, boost::asio::buffer(text), ignored);
  }

  // Returns everything until the server closes.
  std::string receive() {
    std::string text;
    boost::system::error_code error;
    boost::asio::read(socket_, boost::asio::dynamic_buffer(text), error);
    return text;
  }

 private:
  boost::asio::io_context context_;
  tcp::socket socket_{context_};
};

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = HttpServer::start(
        "127.0.0.1:0",
        {.pages = {{"/metrics",
                    [this](const HttpReply& reply) {
                      ++calls_;
                      reply({200, "text/plain", "up 1\n"});
                    }},
                   {"/readyz",
                    [](const HttpReply& reply) {
                      reply({503, "text/plain", "no\n"});
                    }},
                   {"/later", [this](const HttpReply& reply) { held_back_.set_value(reply); }}}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  std::string exchange(const std::string& request) {
    Client client(server_->port());
    client.send(request);
    return client.receive();
  }

  std::atomic<int> calls_{0};
  std::promise<HttpReply> held_back_;  // reply of /later, which is requested once
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, ServesItsPages) {
  EXPECT_GT(server_->port(), 0);
  const std::string response = exchange("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(response, HasSubstr("\r\n\r\nup 1\n"));
  EXPECT_THAT(exchange("GET /metrics?name[]=up HTTP/1.0\r\n\r\n"), HasSubstr("up 1\n"));
  EXPECT_THAT(exchange("GET /readyz HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 503"));
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  const std::string response = exchange("HEAD /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(response, HasSubstr("Content-Length: 5"));
  EXPECT_THAT(response, ::testing::EndsWith("\r\n\r\n"));
}

TEST_F(HttpServerTest, AnUnknownPageNamesTheKnownOnes) {
  const std::string response = exchange("GET /etc/passwd HTTP/1.1\r\n\r\n");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(response, HasSubstr("/later /metrics /readyz"));
}

TEST_F(HttpServerTest, OtherMethodsAreNotAllowed) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    const std::string response =
        exchange(absl::StrCat(method, " /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n"));
    EXPECT_THAT(response, StartsWith("HTTP/1.1 405")) << method;
    EXPECT_THAT(response, HasSubstr("Allow: GET"));
  }
  EXPECT_EQ(calls_, 0);
}

TEST_F(HttpServerTest, AHugeRequestIsCutOff) {
  EXPECT_THAT(exchange("GET /" + std::string(1 << 20, 'a')), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(exchange("GET / HTTP/1.1\r\n" + std::string(1 << 20, 'a')),
              StartsWith("HTTP/1.1 431"));
}

TEST_F(HttpServerTest, GarbageGetsAnErrorOrAClosedConnection) {
  EXPECT_THAT(exchange("\x16\x03\x01 not http\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(exchange("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(exchange("GET /metrics HTTP/1.1\r\n\r\n"), HasSubstr("up 1"))
      << "the server continues to respond";
}

TEST_F(HttpServerTest, ASlowClientDelaysNoOtherAndIsDisconnected) {
  Client slow(server_->port());
  slow.send("GET /metr");
  const std::string response = exchange("GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(response, HasSubstr("up 1"));
  EXPECT_EQ(slow.receive(), "") << "closed after the time limit";
}

TEST_F(HttpServerTest, ALateAnswerDelaysNoOtherPage) {
  Client waiting(server_->port());
  waiting.send("GET /later HTTP/1.1\r\n\r\n");
  const HttpReply reply = held_back_.get_future().get();
  EXPECT_THAT(exchange("GET /metrics HTTP/1.1\r\n\r\n"), HasSubstr("up 1"));
  std::thread([&] { reply({200, "text/plain", "at last\n"}); }).join();
  reply({200, "text/plain", "once more\n"});
  EXPECT_THAT(waiting.receive(), ::testing::EndsWith("\r\n\r\nat last\n"));
}

TEST_F(HttpServerTest, AnAnswerThatNeverComesIsA503AndMayComeAfterTheServersEnd) {
  EXPECT_THAT(exchange("GET /later HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 503"));
  server_.reset();
  held_back_.get_future().get()({200, "text/plain", "too late\n"});
}

TEST_F(HttpServerTest, ManyClientsAtOnceAreAllServed) {
  std::vector<std::thread> clients;
  std::atomic<int> served{0};
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&] {
      for (int i = 0; i < 25; ++i) {
        served +=
            exchange("GET /metrics HTTP/1.1\r\n\r\n").find("up 1") != std::string::npos ? 1 : 0;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(served, 200);
}

// The fault that was reported: 150 clients that sent half a request kept health probes out for
// longer than their timeout.
TEST_F(HttpServerTest, SlowClientsDoNotKeepOthersOut) {
  std::vector<std::unique_ptr<Client>> slow;
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 100; ++i) {
      slow.push_back(std::make_unique<Client>(server_->port()));
      slow.back()->send("GET /metr");
    }
    EXPECT_THAT(exchange("GET /metrics HTTP/1.1\r\n\r\n"), HasSubstr("up 1"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitTakeThePlaceOfIdleOnes) {
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 80; ++i) idle.push_back(std::make_unique<Client>(server_->port()));
  idle.erase(idle.begin(), idle.begin() + 70);
  EXPECT_THAT(exchange("GET /metrics HTTP/1.1\r\n\r\n"), HasSubstr("up 1"));
}

TEST_F(HttpServerTest, APortInUseIsNamed) {
  const auto second = HttpServer::start(absl::StrCat("127.0.0.1:", server_->port()), {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat(server_->port())));
}

TEST_F(HttpServerTest, LocalhostIsAnIpv4Address) {
  const auto server = HttpServer::start("localhost:0", {});
  ASSERT_TRUE(server.ok()) << server.status();
  Client client((*server)->port());
  client.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.receive(), StartsWith("HTTP/1.1 404"));
}

TEST_F(HttpServerTest, AnInvalidAddressIsAnError) {
  EXPECT_FALSE(HttpServer::start("nonsense", {}).ok());
  EXPECT_FALSE(HttpServer::start("192.0.2.1:80", {}).ok());
}

TEST_F(HttpServerTest, EndsWithClientsInTheMiddleOfARequest) {
  Client slow(server_->port());
  slow.send("GET ");
  Client quick(server_->port());
  server_.reset();
  EXPECT_EQ(slow.receive(), "");
}

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

}  // namespace
}  // namespace muster::daemon
