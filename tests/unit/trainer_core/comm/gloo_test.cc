#include "trainer_core/comm/gloo.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string>
#include <vector>

#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <gtest/gtest.h>

#include "tests/unit/trainer_core/comm/collectives.h"
#include "tests/unit/trainer_core/comm/store_server.h"
#include "trainer_core/comm/gloo_store.h"
#include "trainer_core/comm/transport_group.h"

namespace muster::trainer {
namespace {

using std::chrono::milliseconds;
using testing::ContainsRegex;
using testing::HasSubstr;

class Gloo : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { std::signal(SIGPIPE, SIG_IGN); }

  GlooOptions options(int rank, int size) const {
    GlooOptions options;
    options.rank = rank;
    options.size = size;
    options.rendezvous = store_.address();
    options.scope = "7/1/";
    options.connect_timeout = milliseconds(20'000);
    options.timeout = milliseconds(20'000);
    return options;
  }

  std::unique_ptr<ProcessGroup> connect(const GlooOptions& options,
                                        ProgressWriter* page = nullptr) {
    auto transport = connect_gloo(options);
    EXPECT_TRUE(transport.ok()) << transport.status();
    return transport.ok() ? make_world_group(std::move(*transport), "data", page) : nullptr;
  }

  GroupMaker maker() {
    return [this](int rank, int size) { return connect(options(rank, size)); };
  }

  // Connects a rank through Gloo itself. It sends no message.
  static std::shared_ptr<gloo::Context> connect_without_greeting(const GlooOptions& options) {
    auto client = RendezvousClient::connect(options.rendezvous, options.connect_timeout);
    EXPECT_TRUE(client.ok()) << client.status();
    const auto store = std::make_shared<GlooStore>(std::move(*client), options.scope + "gloo/",
                                                   options.connect_timeout);
    store->set("here/1", {'1'});
    auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options.bind_address;
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    connect_full_mesh(*context, store, device);
    return context;
  }

  StoreServer store_;
};

TEST_P(Gloo, EveryCollectiveMatchesTheReference) {
  on_ranks(GetParam(), maker(), check_everything);
}
TEST_F(Gloo, TransfersLargerThanOneRound) { on_ranks(3, maker(), check_large); }
INSTANTIATE_TEST_SUITE_P(Sizes, Gloo, testing::Values(1, 2, 3, 4, 8));

TEST_F(Gloo, ALostPeerIsUnavailableAndNamed) {
  std::atomic<int> unavailable{0};
  std::atomic<bool> named{false};
  on_ranks(4, maker(), [&](ProcessGroup& group) {
    std::vector<float> data(100'000);
    ASSERT_TRUE(group.all_reduce(data, "first").ok());
    if (group.rank() == 2) return;
    const absl::Status status = group.all_reduce(data, "second");
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("all-reduce \"second\" (number 2 of group \"data\")"));
    if (status.message().find("2") != absl::string_view::npos) named = true;
    EXPECT_EQ(group.barrier("third").code(), absl::StatusCode::kUnavailable);
    ++unavailable;
  });
  EXPECT_EQ(unavailable, 3);
  EXPECT_TRUE(named);
}

TEST_F(Gloo, ATimeoutNamesTheSilentRank) {
  std::atomic<bool> named{false};
  std::atomic<int> done{0};
  on_ranks(
      3,
      [&](int rank, int size) {
        GlooOptions short_wait = options(rank, size);
        short_wait.timeout = milliseconds(300);
        return connect(short_wait);
      },
      [&](ProcessGroup& group) {
        if (group.rank() == 1) {
          while (done < 2) std::this_thread::yield();
          return;
        }
        std::vector<float> data(10);
        const absl::Status status = group.all_reduce(data, "stuck");
        EXPECT_FALSE(status.ok());
        if (status.code() == absl::StatusCode::kDeadlineExceeded) {
          // A rank that has not begun by then is silent, too.
          EXPECT_THAT(std::string(status.message()),
                      ContainsRegex("nothing came from ranks? ([02], )?1[ ,]"));
          named = true;
        }
        ++done;
      });
  EXPECT_TRUE(named);
}

TEST_F(Gloo, AbortFromAnotherThreadEndsTheWait) {
  abort_from_another_thread(
      [&](int rank, ProgressWriter* page) { return connect(options(rank, 2), page); });
}

TEST_F(Gloo, RanksThatDoNotComeAreNamed) {
  GlooOptions alone = options(1, 4);
  alone.connect_timeout = milliseconds(200);
  const absl::Status status = connect_gloo(alone).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("waited 200 ms for these ranks: 0, 2, 3"));
}

TEST_F(Gloo, ScopesAreSeparate) {
  GlooOptions stale = options(0, 2);
  stale.scope = "7/2/";
  GlooOptions fresh = options(1, 2);
  stale.connect_timeout = fresh.connect_timeout = milliseconds(200);
  std::thread other([&] { EXPECT_FALSE(connect_gloo(stale).ok()); });
  EXPECT_FALSE(connect_gloo(fresh).ok());
  other.join();
}

// A rank that continued could reset a connection that its peer's Gloo has not accepted yet, which
// ends the peer's process.
TEST_F(Gloo, ARankWaitsUntilItsPeersHaveAcceptedItsConnections) {
  GlooOptions waiting = options(0, 2);
  waiting.connect_timeout = milliseconds(500);
  std::thread connecting([&] {
    const absl::Status status = connect_gloo(waiting).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("nothing came from rank 1"));
  });
  const auto silent = connect_without_greeting(options(1, 2));
  connecting.join();
}

// The kernel drops connection attempts while the queue of a listener is full, as a host that is cut
// off does. It would try for two minutes.
TEST_F(Gloo, AStoreThatDoesNotAnswerIsUnavailableAtTheDeadline) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  std::vector<int> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    (void)::connect(clients.back(), reinterpret_cast<sockaddr*>(&address), size);
  }
  const std::string store = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  const auto client = RendezvousClient::connect(store, milliseconds(500));
  EXPECT_TRUE(absl::IsUnavailable(client.status()));
  EXPECT_THAT(std::string(client.status().message()),
              HasSubstr("no rendezvous store at " + store + ": Connection timed out"));
  for (const int fd : clients) close(fd);
  close(listener);
}

TEST_F(Gloo, NoStoreIsUnavailable) {
  GlooOptions none = options(0, 2);
  none.connect_timeout = milliseconds(50);
  none.rendezvous = "127.0.0.1:1";
  EXPECT_EQ(connect_gloo(none).status().code(), absl::StatusCode::kUnavailable);
  none.rendezvous = "nonsense";
  EXPECT_EQ(connect_gloo(none).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster::trainer
