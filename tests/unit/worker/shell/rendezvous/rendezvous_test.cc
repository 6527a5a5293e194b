// The rendezvous store, alone and served over TCP to concurrent clients.
#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "common/job/rendezvous_wire.h"
#include "tests/unit/worker/shell/shell_fixture.h"
#include "worker/shell/rendezvous/rendezvous_server.h"
#include "worker/shell/rendezvous/rendezvous_store.h"

namespace muster::worker {
namespace {

using boost::asio::ip::tcp;
using rendezvous::Op;
using ::testing::HasSubstr;

TEST(RendezvousStore, WakesAllWaitersOfAKey) {
  RendezvousStore store({});
  std::vector<std::string> got;
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(store.get("1/1/a", [&](absl::StatusOr<std::string> value) { got.push_back(*value); }),
              0U);
  }
  const auto cancelled = store.get("1/1/a", [&](absl::StatusOr<std::string>) { FAIL(); });
  store.cancel(cancelled);
  ASSERT_TRUE(store.set("1/1/a", "x").ok());
  EXPECT_EQ(got, (std::vector<std::string>{"x", "x", "x"}));
  ASSERT_TRUE(store.set("1/1/a", "y").ok());
  EXPECT_EQ(store.get("1/1/a", [&](absl::StatusOr<std::string> value) { got.push_back(*value); }),
            0U);
  EXPECT_EQ(got.back(), "y");
}

TEST(RendezvousStore, KeysNeedAScope) {
  RendezvousStore store({});
  for (const char* key : {"", "a", "1/a", "1/1/", "x/1/a", "1/x/a", "-1/1/a", "/1/1/a"}) {
    EXPECT_EQ(store.set(key, "v").code(), absl::StatusCode::kInvalidArgument) << key;
    absl::Status printed;
    EXPECT_EQ(store.get(key, [&](absl::StatusOr<std::string> value) { printed = value.status(); }),
              0U);
    EXPECT_FALSE(printed.ok());
  }
}

TEST(RendezvousStore, ADroppedScopeRefusesKeys) {
  RendezvousStore store({});
  ASSERT_TRUE(store.set("1/1/a", "v").ok());
  ASSERT_TRUE(store.set("1/2/a", "v").ok());
  ASSERT_TRUE(store.set("11/1/a", "v").ok());
  absl::Status printed;
  store.get("1/1/b", [&](absl::StatusOr<std::string> value) { printed = value.status(); });
  store.drop_scope({JobId(1), Attempt(1)});
  EXPECT_EQ(printed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store.key_count(), 2U);
  EXPECT_EQ(store.set("1/1/a", "v").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(store.set("1/2/b", "v").ok());
  EXPECT_TRUE(store.set("11/1/b", "v").ok());
  store.forget_scope({JobId(1), Attempt(1)});
  EXPECT_TRUE(store.set("1/1/a", "v").ok()) << "another coordinator's launch of the same numbers";
}

TEST(RendezvousStore, KeysAndBytesAreBounded) {
  RendezvousLimits limits;
  limits.keys_max = 2;
  limits.bytes_max = 20;
  RendezvousStore store(limits);
  EXPECT_TRUE(store.set("1/1/a", "12345").ok());
  EXPECT_EQ(store.set("1/1/b", "1234567890").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store.set("1/1/a", "1234567890").ok()) << "what is replaced makes room";
  EXPECT_TRUE(store.set("1/1/b", "").ok());
  EXPECT_EQ(store.set("1/1/c", "").code(), absl::StatusCode::kResourceExhausted);
  store.drop_scope({JobId(1), Attempt(1)});
  EXPECT_EQ(store.bytes(), 0U);
}

class Client {
 public:
  explicit Client(int port) {
    socket_.connect({boost::asio::ip::address_v4::loopback(), static_cast<uint16_t>(port)});
  }

  std::pair<bool, std::string> call(Op op, const std::string& key, const std::string& value) {
    send(rendezvous::encode_request(op, key, value));
    return answer();
  }

  void send(const std::string& bytes) {
    boost::system::error_code ignored;
    boost::asio::write(socket_, boost::asio::buffer(bytes), ignored);
  }

  std::pair<bool, std::string> answer() {
    std::array<char, rendezvous::kResponseHeaderBytes> bytes{};
    boost::system::error_code error;
    boost::asio::read(socket_, boost::asio::buffer(bytes), error);
    if (error) return {false, "closed"};
    const auto header = rendezvous::decode_response_header(bytes);
    std::string value(header->value_bytes, '\0');
    boost::asio::read(socket_, boost::asio::buffer(value), error);
    return {header->ok, value};
  }

 private:
  boost::asio::io_context context_;
  tcp::socket socket_{context_};
};

class RendezvousServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = RendezvousServer::start(context_, {"127.0.0.1", 0}, {});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    thread_ = std::thread([this] { context_.run(); });
  }
  void TearDown() override {
    boost::asio::post(context_, [this] {
      server_.reset();
      context_.stop();
    });
    thread_.join();
  }

  int port() const { return server_->port(); }

  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_{
      context_.get_executor()};
  std::unique_ptr<RendezvousServer> server_;
  std::thread thread_;
};

TEST_F(RendezvousServerTest, ConcurrentRanksAllMeet) {
  constexpr int kRanks = 16;
  std::atomic<int> met{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      Client client(port());
      ASSERT_TRUE(
          client.call(Op::kSet, absl::StrCat("3/1/rank", rank), absl::StrCat("address", rank))
              .first);
      for (int peer = 0; peer < kRanks; ++peer) {
        const auto [ok, value] = client.call(Op::kGet, absl::StrCat("3/1/rank", peer), "20000");
        ASSERT_TRUE(ok) << value;
        met += value == absl::StrCat("address", peer) ? 1 : 0;
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(met, kRanks * kRanks);
}

TEST_F(RendezvousServerTest, AWaitThatRunsOutNamesTheKey) {
  Client client(port());
  const Instant before = monotonic_now();
  const auto [ok, printed] = client.call(Op::kGet, "3/1/rank7", "150");
  EXPECT_FALSE(ok);
  EXPECT_THAT(printed, HasSubstr("'3/1/rank7'"));
  EXPECT_GE(monotonic_now() - before, std::chrono::milliseconds(150));
  EXPECT_TRUE(client.call(Op::kSet, "3/1/rank7", "v").first) << "the connection lives on";
  EXPECT_EQ(client.call(Op::kGet, "3/1/rank7", "0").second, "v");
}

TEST_F(RendezvousServerTest, BadRequestsAreAnswered) {
  Client client(port());
  EXPECT_THAT(client.call(Op::kGet, "3/1/x", "soon").second, HasSubstr("milliseconds"));
  EXPECT_THAT(client.call(Op::kSet, "unscoped", "v").second, HasSubstr("scope"));
  client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.answer().second, HasSubstr("magic"));
  EXPECT_EQ(client.answer().second, "closed");
}

TEST_F(RendezvousServerTest, AWaitingClientMayDisconnect) {
  for (int i = 0; i < 20; ++i) {
    Client client(port());
    client.send(rendezvous::encode_request(Op::kGet, "3/1/never", "60000"));
    if (i % 2 == 0) client.send("MRV");
  }
  Client client(port());
  EXPECT_TRUE(client.call(Op::kSet, "3/1/never", "v").first);
}

TEST_F(RendezvousServerTest, TheEndOfAnAttemptAnswersWaiters) {
  Client client(port()), other(port());
  ASSERT_TRUE(client.call(Op::kSet, "3/1/x", "v").first);
  client.send(rendezvous::encode_request(Op::kGet, "3/1/a", "60000"));
  ASSERT_TRUE(other.call(Op::kSet, "3/1/x", "v").first) << "answered after what came before it";
  boost::asio::post(context_, [this] { server_->drop_scope({JobId(3), Attempt(1)}); });
  const auto [ok, printed] = client.answer();
  EXPECT_FALSE(ok);
  EXPECT_THAT(printed, HasSubstr("attempt 1 of job 3 has ended"));
}

TEST_F(RendezvousServerTest, APortInUseIsNamed) {
  boost::asio::io_context other;
  const auto second = RendezvousServer::start(other, {"127.0.0.1", port()}, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat(port())));
}

}  // namespace
}  // namespace muster::worker
