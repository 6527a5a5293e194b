#include "coordinator/shell/etcd/commit_log.h"

#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <absl/strings/str_format.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/shell/etcd/commit_log_fixture.h"
#include "tests/unit/coordinator/shell/etcd/lossy_link.h"

namespace muster::coordinator {
namespace {

using testing::HasSubstr;

TEST_F(CommitLogTest, CommitsAreNumberedOverAllTerms) {
  for (uint64_t term = 0; term < 3; ++term) {
    Leader leader(options(), kLong);
    EXPECT_FALSE(leader.log.has_commits());
    ASSERT_TRUE(leader.log.recover().ok());
    EXPECT_EQ(leader.log.has_commits(), term > 0);
    for (uint64_t commit = 1; commit <= 2; ++commit) {
      ASSERT_TRUE(leader.log.commit(change("a", std::to_string(commit))).ok());
      EXPECT_EQ(number(), term * 2 + commit);
    }
  }
  EXPECT_EQ(value_of("a"), "2");
}

TEST_F(CommitLogTest, ADeposedLeaderStoresNothing) {
  Leader first(options(), kLong);
  ASSERT_TRUE(first.log.recover().ok());
  ASSERT_TRUE(first.log.commit(change("a", "first")).ok());
  depose();
  const auto before = keys();
  for (const KeyChanges& changes : {change("a", "late"), large('l')}) {
    const absl::Status status = first.log.commit(changes);
    EXPECT_TRUE(is_deposed(status)) << status;
    EXPECT_TRUE(first.term.lease->is_held()) << "etcd has refused it, not the lease";
    EXPECT_EQ(keys(), before);
  }
  Leader second(options(), kLong);
  ASSERT_TRUE(second.log.recover().ok());
  ASSERT_TRUE(second.log.commit(change("a", "second")).ok());
  EXPECT_TRUE(is_deposed(first.log.commit(change("a", "late"))));
  EXPECT_EQ(value_of("a"), "second");
}

// etcd executes the transaction, and its answer is lost with the connection.
TEST_F(CommitLogTest, ALostAnswerIsFoundOut) {
  LossyLink link(EtcdServer::shared().port());
  EtcdOptions through = options();
  through.endpoints = link.endpoint();
  Leader leader(through, kLong);
  ASSERT_TRUE(leader.log.recover().ok());
  for (int round = 1; round <= 2; ++round) {
    link.lose_next_answer(2'000);
    const absl::Status status = leader.log.commit(change("a", std::string(5'000, 'a')));
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(link.has_lost());
    EXPECT_EQ(number(), static_cast<uint64_t>(round)) << "stored once";
  }
}

TEST_F(CommitLogTest, AMissingPartIsDataLoss) {
  Leader first(options(), kLong);
  ASSERT_TRUE(first.log.recover().ok());
  etcd_state::StoredCommit commit;
  commit.set_number(1);
  commit.set_term(first.term.lease->term());
  commit.set_staged(2);
  put("commit", commit.SerializeAsString());
  depose();
  Leader second(options(), kLong);
  const absl::Status status = second.log.recover();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("is missing"));
}

TEST_F(CommitLogTest, WaitsForEtcdWhileTheLeaseIsHeld) {
  Leader leader(options(), kLong);
  ASSERT_TRUE(leader.log.recover().ok());
  EtcdServer::shared().pause();
  auto commit = std::async(std::launch::async, [&] { return leader.log.commit(change("a", "1")); });
  // Longer than one call, so that the transaction is sent again.
  EXPECT_EQ(commit.wait_for(std::chrono::milliseconds(1'800)), std::future_status::timeout);
  EtcdServer::shared().resume();
  EXPECT_TRUE(commit.get().ok());
  EXPECT_EQ(value_of("a"), "1");
  EXPECT_EQ(number(), 1U);
}

TEST_F(CommitLogTest, EndsWithAnUnknownOutcomeWhenTheLeaseIsLost) {
  LossyLink link(EtcdServer::shared().port());
  EtcdOptions through = options();
  through.endpoints = link.endpoint();
  Leader leader(through, kLong);
  ASSERT_TRUE(leader.log.recover().ok());
  link.cut_after(4'000);
  auto commit = std::async(
      std::launch::async, [&] { return leader.log.commit(change("a", std::string(10'000, 'a'))); });
  while (!link.is_cut()) std::this_thread::sleep_for(kPoll);
  leader.term.lease->resign();
  const absl::Status status = commit.get();
  EXPECT_TRUE(is_deposed(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("whether its last commit is stored is unknown"));
  const absl::Status next = leader.log.commit(change("a", "2"));
  EXPECT_TRUE(is_deposed(next)) << next;
  EXPECT_THAT(std::string(next.message()), testing::Not(HasSubstr("unknown")));
  depose();
}

TEST_F(CommitLogTest, ALargeCommitLeavesNoStage) {
  Leader leader(options(), kLong);
  ASSERT_TRUE(leader.log.recover().ok());
  for (const char letter : {'a', 'b'}) {
    ASSERT_TRUE(leader.log.commit(large(letter)).ok());
    EXPECT_EQ(this->letter(), letter);
    EXPECT_FALSE(has_stage());
  }
  KeyChanges none;
  for (auto& [key, value] : large('x')) none[key] = std::nullopt;
  ASSERT_TRUE(leader.log.commit(none).ok());
  EXPECT_EQ(letter(), 0);
}

// A leader loses etcd at different points of a commit, for good. The one that follows finds the
// commit completely or not at all.
TEST_F(CommitLogTest, ALargeCommitIsCompleteOrAbsentAfterACrash) {
  // The leader sends three mebibytes twice: to the stage, and to their keys.
  constexpr int kCuts = 16;
  constexpr int64_t kFirstCut = 100'000;
  constexpr int64_t kStep = 420'000;
  std::map<char, int> outcomes;
  std::vector<std::future<void>> crashes;
  std::vector<std::unique_ptr<LossyLink>> links;
  const auto options_of = [&](int cut) {
    EtcdOptions own = options();
    own.prefix += std::to_string(cut);
    return own;
  };
  const auto changes_of = [&](int cut, char letter) {
    KeyChanges changes;
    for (int i = 0; i < 12; ++i)
      changes[options_of(cut).prefix + "/large" + std::to_string(10 + i)] =
          std::string(kValueBytesMax / 2, letter);
    return changes;
  };
  for (int cut = 0; cut < kCuts; ++cut) {
    links.push_back(std::make_unique<LossyLink>(EtcdServer::shared().port()));
    EtcdOptions through = options_of(cut);
    through.endpoints = links.back()->endpoint();
    LossyLink& link = *links.back();
    crashes.push_back(std::async(std::launch::async, [&, cut, through] {
      Leader leader(through, kLong);
      ASSERT_TRUE(leader.log.recover().ok());
      ASSERT_TRUE(leader.log.commit(changes_of(cut, 'a')).ok());
      link.cut_after(kFirstCut + cut * kStep);
      auto commit =
          std::async(std::launch::async, [&] { return leader.log.commit(changes_of(cut, 'b')); });
      while (commit.wait_for(kPoll) != std::future_status::ready) {
        if (link.is_cut()) leader.term.lease->resign();
      }
    }));
  }
  for (auto& crash : crashes) crash.get();
  for (int cut = 0; cut < kCuts; ++cut) {
    depose(options_of(cut));
    Leader next(options_of(cut), kLong);
    ASSERT_TRUE(next.log.recover().ok());
    std::string letters;
    for (const auto& [key, value] : changes_of(cut, 'x')) {
      etcdserverpb::RangeRequest request;
      request.set_key(key);
      letters += next.calls.range(request)->kvs(0).value()[0];
    }
    EXPECT_EQ(letters, std::string(12, letters[0])) << "cut " << cut;
    ++outcomes[letters[0]];
    etcdserverpb::RangeRequest stage;
    stage.set_key(next.term.client->key("stage/"));
    stage.set_range_end(prefix_end(next.term.client->key("stage/")));
    EXPECT_EQ(next.calls.range(stage)->count(), 0) << "cut " << cut;
  }
  EXPECT_GT(outcomes['a'], 0);
  EXPECT_GT(outcomes['b'], 0);
}

// The state that a crash between two moves leaves, made by hand.
TEST_F(CommitLogTest, ALeaderCompletesTheMovesOfAnotherOne) {
  Leader first(options(), kLong);
  ASSERT_TRUE(first.log.recover().ok());
  ASSERT_TRUE(first.log.commit(large('a')).ok());
  const auto parts = split(large('b'));
  ASSERT_GT(parts.size(), 3U);
  etcd_state::StoredCommit commit;
  commit.set_number(2);
  commit.set_term(first.term.lease->term());
  commit.set_staged(static_cast<uint32_t>(parts.size()));
  put("commit", commit.SerializeAsString());
  const auto stage = [&](const Leader& leader, int number, size_t part, const std::string& value) {
    put(absl::StrFormat("stage/%016x/%016x-%016x/%06d", leader.term.lease->term(), number, 0, part),
        value);
  };
  // The first part has moved.
  etcdserverpb::TxnRequest moved;
  add_operations(parts[0], moved);
  ASSERT_TRUE(first.term.client->txn(moved, kLong).ok());
  stage(first, 2, 0, "");
  for (size_t part = 1; part < parts.size(); ++part)
    stage(first, 2, part, parts[part].SerializeAsString());
  depose();
  Leader second(options(), kLong);
  ASSERT_TRUE(second.log.recover().ok());
  EXPECT_EQ(letter(), 'b');
  EXPECT_FALSE(has_stage());
  // Staged parts of a commit that did not become valid.
  for (size_t part = 0; part < parts.size(); ++part)
    stage(second, 3, part, parts[part].SerializeAsString());
  ASSERT_TRUE(second.log.commit(large('c')).ok());
  EXPECT_EQ(letter(), 'c');
  for (size_t part = 0; part < parts.size(); ++part)
    stage(second, 4, part, parts[part].SerializeAsString());
  depose();
  Leader third(options(), kLong);
  ASSERT_TRUE(third.log.recover().ok());
  EXPECT_EQ(letter(), 'c');
  EXPECT_FALSE(has_stage());
}

TEST_F(CommitLogTest, HistoryIsForgotten) {
  Leader leader(options(), kLong);
  ASSERT_TRUE(leader.log.recover().ok());
  ASSERT_TRUE(leader.log.commit(change("a", "secret")).ok());
  etcdserverpb::RangeRequest past;
  past.set_key(options().prefix + "/a");
  past.set_revision(leader.calls.revision());
  ASSERT_TRUE(leader.log.commit(change("a", "")).ok());
  EXPECT_EQ(leader.calls.range(past)->kvs(0).value(), "secret");
  leader.log.forget_history();
  EXPECT_TRUE(absl::IsOutOfRange(leader.calls.range(past).status()));
}

TEST_F(CommitLogTest, AForeignProgramIsNoticed) {
  Leader leader(options(), kLong);
  ASSERT_TRUE(leader.log.recover().ok());
  ASSERT_TRUE(leader.log.commit(change("a", "1")).ok());
  put("commit", "x");
  const absl::Status status = leader.log.commit(change("a", "2"));
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("another program"));
  depose();
  Leader next(options(), kLong);
  EXPECT_TRUE(absl::IsDataLoss(next.log.recover()));
}

}  // namespace
}  // namespace muster::coordinator
