#include "coordinator/shell/etcd/leader_lease.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "etcd/etcd.pb.h"
#include "tests/unit/coordinator/shell/etcd/etcd_server.h"

namespace muster::coordinator {
namespace {

constexpr Duration kShort = std::chrono::seconds(1);
constexpr Duration kEnough = std::chrono::seconds(20);

class LeaderLeaseTest : public EtcdTest {
 protected:
  void SetUp() override {
    EtcdTest::SetUp();
    if (!IsSkipped()) client_ = EtcdClient::create(options()).value();
  }
  LeaderOptions candidate(const std::string& name, Duration ttl = kLong) {
    LeaderOptions options;
    options.self = {name + ":7070", name + ":7071", name, 42};
    options.ttl = ttl;
    options.on_lost = [this](absl::Status reason) { lost_.set_value(reason); };
    return options;
  }
  // Returns the reason that a lease has passed to on_lost.
  absl::Status reason() {
    auto reported = lost_.get_future();
    EXPECT_EQ(reported.wait_for(kEnough), std::future_status::ready);
    return reported.get();
  }

  std::unique_ptr<EtcdClient> client_;
  std::promise<absl::Status> lost_;
};

TEST_F(LeaderLeaseTest, OneLeadsAndTheOthersSeeIt) {
  EXPECT_EQ(current_leader(*client_, kEnough).value(), std::nullopt);
  LeaderLease first(*client_, candidate("first"));
  EXPECT_FALSE(first.is_held());
  ASSERT_TRUE(first.campaign({}).ok());
  EXPECT_TRUE(first.is_held());
  EXPECT_EQ(first.seen_leader(), candidate("first").self);
  EXPECT_EQ(current_leader(*client_, kEnough).value(), candidate("first").self);

  LeaderLease second(*client_, candidate("second"));
  std::stop_source stop;
  auto standby = std::async(std::launch::async, [&] { return second.campaign(stop.get_token()); });
  while (!second.seen_leader().has_value()) std::this_thread::yield();
  EXPECT_EQ(second.seen_leader(), candidate("first").self);
  EXPECT_FALSE(second.is_held());
  first.resign();
  EXPECT_FALSE(first.is_held());
  EXPECT_TRUE(standby.get().ok());
  EXPECT_TRUE(second.is_held());
  EXPECT_GT(second.term(), first.term());
  EXPECT_EQ(current_leader(*client_, kEnough).value(), candidate("second").self);
}

TEST_F(LeaderLeaseTest, ACampaignCanBeStopped) {
  LeaderLease first(*client_, candidate("first"));
  ASSERT_TRUE(first.campaign({}).ok());
  LeaderLease second(*client_, candidate("second"));
  std::stop_source stop;
  auto standby = std::async(std::launch::async, [&] { return second.campaign(stop.get_token()); });
  stop.request_stop();
  EXPECT_TRUE(absl::IsCancelled(standby.get()));
}

TEST_F(LeaderLeaseTest, ACoordinatorThatCannotWorkMakesRoom) {
  std::atomic<bool> works = true;
  LeaderLease lease(*client_, candidate("first", kShort));
  ASSERT_TRUE(lease.campaign({}).ok());
  lease.renew_while(
      [&] { return works ? absl::OkStatus() : absl::UnavailableError("it is stuck"); });
  LeaderLease standby(*client_, candidate("second"));
  works = false;
  EXPECT_EQ(reason().message(), "this coordinator no longer leads: it is stuck");
  EXPECT_FALSE(lease.is_held());
  EXPECT_TRUE(standby.campaign({}).ok());
}

TEST_F(LeaderLeaseTest, IsRenewed) {
  LeaderLease lease(*client_, candidate("only", std::chrono::seconds(6)));
  ASSERT_TRUE(lease.campaign({}).ok());
  const int64_t term = lease.term();
  for (int renewal = 0; renewal < 2; ++renewal) {
    Duration left = lease.time_left();
    for (Duration next = left; next <= left; next = lease.time_left()) {
      ASSERT_TRUE(lease.is_held());
      left = next;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  EXPECT_EQ(lease.term(), term);
  EXPECT_EQ(current_leader(*client_, kEnough).value(), candidate("only").self);
}

TEST_F(LeaderLeaseTest, IsLostIfEtcdDoesNotAnswer) {
  LeaderLease lease(*client_, candidate("only", kShort));
  ASSERT_TRUE(lease.campaign({}).ok());
  EtcdServer::shared().pause();
  const absl::Status why = reason();
  EXPECT_FALSE(lease.is_held());
  EXPECT_EQ(lease.time_left(), Duration(0));
  EXPECT_EQ(lease.seen_leader(), std::nullopt);
  EtcdServer::shared().resume();
  EXPECT_TRUE(is_deposed(why)) << why;
  // The key goes with the lease.
  while (current_leader(*client_, kEnough).value().has_value()) std::this_thread::yield();
  EXPECT_FALSE(lease.is_held()) << "once lost, it stays lost";
}

TEST_F(LeaderLeaseTest, IsLostIfEtcdDropsIt) {
  LeaderLease lease(*client_, candidate("only", std::chrono::seconds(6)));
  ASSERT_TRUE(lease.campaign({}).ok());
  etcdserverpb::RangeRequest request;
  request.set_key(lease.key());
  const int64_t id = client_->range(request, kEnough)->kvs(0).lease();
  ASSERT_TRUE(client_->revoke_lease(id, kEnough).ok());
  EXPECT_TRUE(is_deposed(reason()));
  EXPECT_FALSE(lease.is_held());
}

TEST_F(LeaderLeaseTest, WaitsForEtcd) {
  EtcdServer::shared().pause();
  LeaderLease lease(*client_, candidate("only"));
  auto campaign = std::async(std::launch::async, [&] { return lease.campaign({}); });
  EXPECT_EQ(campaign.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  EtcdServer::shared().resume();
  EXPECT_TRUE(campaign.get().ok());
  EXPECT_TRUE(lease.is_held());
}

}  // namespace
}  // namespace muster::coordinator
