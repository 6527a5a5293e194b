// Transactions of the commit log that a member of etcd executes late, after they were repeated.
#include <future>
#include <string>
#include <thread>

#include <absl/strings/str_format.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "etcd/etcd.grpc.pb.h"
#include "tests/unit/coordinator/shell/etcd/commit_log_fixture.h"
#include "tests/unit/coordinator/shell/etcd/lossy_link.h"

namespace muster::coordinator {
namespace {

using LateTransactionsTest = CommitLogTest;

// Reaches etcd by two links, as if it had two members.
class TwoLinks {
 public:
  EtcdOptions options(EtcdOptions own) const {
    own.endpoints = first.endpoint() + "," + second.endpoint();
    return own;
  }

  LossyLink first{EtcdServer::shared().port()};
  LossyLink second{EtcdServer::shared().port()};
};

// The move of a part stalls in one member, is repeated at the other one, and is executed again
// after another commit has changed the row.
TEST_F(LateTransactionsTest, ALateMoveChangesNothing) {
  TwoLinks links;
  Leader leader(links.options(options()), kLong);
  ASSERT_TRUE(leader.log.recover().ok());
  // The last key is in the second part, which is sent to the stage first.
  const std::string last = absl::StrFormat("many%04d", kKeysOfMany - 1);
  links.first.hold(last, 2);
  absl::Status status = leader.log.commit(many(options(), "old"));
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(links.first.is_holding());
  EXPECT_EQ(value_of(last), "old") << "the other member has executed it";
  status = leader.log.commit(change(last, "new"));
  ASSERT_TRUE(status.ok()) << status;
  links.first.release();
  EXPECT_EQ(value_of(last), "new");
  EXPECT_FALSE(has_stage());
  ASSERT_TRUE(leader.log.commit(change("a", "1")).ok());
  EXPECT_EQ(number(), 3U);
}

// The deletion of a commit's stage stalls, and is executed again while the next one is staged.
TEST_F(LateTransactionsTest, ALateDeletionOfAStageLosesNothing) {
  TwoLinks links;
  Leader leader(links.options(options()), kLong);
  ASSERT_TRUE(leader.log.recover().ok());
  links.first.hold("/stage/\x12");  // the begin of a range
  ASSERT_TRUE(leader.log.commit(many(options(), "old")).ok());
  ASSERT_TRUE(links.first.is_holding());
  EXPECT_FALSE(has_stage());
  links.second.hold("/commit\x12");  // the transaction that makes the next commit valid
  auto commit =
      std::async(std::launch::async, [&] { return leader.log.commit(many(options(), "new")); });
  while (!links.second.is_holding()) std::this_thread::sleep_for(kPoll);
  links.first.release();
  const absl::Status status = commit.get();
  ASSERT_TRUE(status.ok()) << status;
  size_t count = 0;
  for (const auto& [key, value] : keys()) count += key.rfind("many", 0) == 0 && value == "new";
  EXPECT_EQ(count, size_t{kKeysOfMany});
  EXPECT_FALSE(has_stage());
}

// A staged part arrives again after its commit.
TEST_F(LateTransactionsTest, ALateStageIsRefused) {
  TwoLinks links;
  Leader leader(links.options(options()), kLong);
  ASSERT_TRUE(leader.log.recover().ok());
  links.first.hold(absl::StrFormat("many%04d", kKeysOfMany - 1));
  ASSERT_TRUE(leader.log.commit(many(options(), "old")).ok());
  links.first.release();
  EXPECT_FALSE(has_stage());
}

void set_alarm(const EtcdServer& server, etcdserverpb::AlarmRequest::AlarmAction action) {
  const auto stub = etcdserverpb::Maintenance::NewStub(grpc::CreateChannel(
      absl::StrFormat("127.0.0.1:%d", server.port()), grpc::InsecureChannelCredentials()));
  etcdserverpb::AlarmRequest request;
  request.set_action(action);
  request.set_alarm(etcdserverpb::NOSPACE);
  grpc::ClientContext context;
  etcdserverpb::AlarmResponse response;
  const grpc::Status status = stub->Alarm(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
}

// One member stalls, the other one has no space. Later the first one executes the transaction.
TEST_F(LateTransactionsTest, ACommitThatIsRepeatedForLackOfSpaceIsFound) {
  const EtcdServer server;
  LossyLink first(server.port()), second(server.port());
  EtcdOptions through = options();
  through.endpoints = first.endpoint() + "," + second.endpoint();
  Leader leader(through, kLong);
  ASSERT_TRUE(leader.log.recover().ok());
  ASSERT_TRUE(leader.log.commit(change("a", "1")).ok());
  first.hold("/commit\x12");
  auto commit =
      std::async(std::launch::async, [&] { return leader.log.commit(many(options(), "x")); });
  while (!first.is_holding()) std::this_thread::sleep_for(kPoll);
  set_alarm(server, etcdserverpb::AlarmRequest::ACTIVATE);
  absl::Status status = commit.get();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  set_alarm(server, etcdserverpb::AlarmRequest::DEACTIVATE);
  first.release();
  status = leader.log.commit(many(options(), "x"));
  EXPECT_TRUE(status.ok()) << status;
  status = leader.log.commit(change("a", "2"));
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace muster::coordinator
