#include "daemon/http_server.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/http_client.h"

namespace muster::daemon {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

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

}  // namespace
}  // namespace muster::daemon
