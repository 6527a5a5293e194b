#include "coordinator/core/sweep/sweep.h"

#include <functional>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

constexpr int64_t kUnixNs = 1'700'000'000'000'000'000;

class SweepTest : public testing::Test {
 protected:
  struct Answer {
    NodeCheckResult result{true, 1, "nothing is wrong with it", ""};
    DeepCheckFigures figures;
  };
  using Answers = std::function<Answer(const SweepOrder& order)>;

  void begin(int nodes, SweepRequest request = {}) {
    std::vector<WorkerName> names;
    for (int i = 0; i < nodes; ++i) names.emplace_back(absl::StrCat("node", i));
    sweep.emplace(1, std::move(request), names, 100, kUnixNs);
  }
  std::vector<SweepOrder> advance() {
    return sweep->advance(
        history, [](const WorkerName& name) { return name.value() + ":1"; }, now, kUnixNs);
  }
  // Runs the sweep to its end; returns the excluded nodes with the reasons.
  std::map<std::string, std::string> run(const Answers& answers) {
    std::map<std::string, std::string> excluded;
    for (std::vector<SweepOrder> orders = advance(); !sweep->is_over(); orders = advance()) {
      for (const SweepOrder& order : orders) {
        ++orders_of[order.worker.value()];
        const Answer answer = answers(order);
        sweep->take(order.worker, order.check, answer.result, answer.figures, kUnixNs);
      }
      for (auto& [worker, reason] : sweep->take_exclusions()) excluded[worker.value()] = reason;
    }
    for (auto& [worker, reason] : sweep->take_exclusions()) excluded[worker.value()] = reason;
    EXPECT_TRUE(sweep->is_over());
    return excluded;
  }
  static Answer good(const SweepOrder& order) {
    Answer answer;
    answer.figures.kind = "cpu";
    if (order.order.seat.size > 1)
      answer.figures.measurements = {{"all_reduce", 10, "GB/s"}};
    else
      answer.figures.measurements = {{"gemm", 5, "TFLOP/s"}};
    return answer;
  }
  // Adds passed results of the node.
  void add_history(int i, const Measurements& measurements, int count = 3) {
    for (int time = 0; time < count; ++time)
      history.add(WorkerName(absl::StrCat("node", i)),
                  {kUnixNs - 10 + time, true, 1, "good", "cpu", measurements});
  }
  const SweptNode& node(int i) { return sweep->nodes().at(WorkerName(absl::StrCat("node", i))); }

  std::optional<Sweep> sweep;
  CheckHistory history;
  Instant now = instant_from_ns(1'000'000'000'000);
  std::map<std::string, int> orders_of;
};

TEST_F(SweepTest, HealthyNodesPassTheirTestsAndTheirLinks) {
  begin(4, {.seconds = 0.5, .storage_folder = "/data"});
  const auto orders = advance();
  ASSERT_EQ(orders.size(), 4U);
  EXPECT_EQ(orders[0].order.storage_folder, "/data");
  EXPECT_EQ(orders[0].order.seconds, 0.5);
  EXPECT_EQ(orders[0].order.seat.size, 0);
  EXPECT_EQ(sweep->stage_text(), "4 nodes test themselves");
  for (const SweepOrder& order : orders)
    sweep->take(order.worker, order.check, good(order).result, good(order).figures, kUnixNs);
  const auto pairs = advance();
  ASSERT_EQ(pairs.size(), 4U);
  EXPECT_EQ(pairs[0].order.seat.rendezvous_address, "node0:1");
  EXPECT_EQ(pairs[1].order.seat.rendezvous_address, "node0:1");
  EXPECT_EQ(pairs[1].order.seat.rank, 1);
  EXPECT_EQ(pairs[0].order.seat.id, pairs[1].order.seat.id);
  EXPECT_NE(pairs[0].order.seat.id, pairs[2].order.seat.id);
  for (const SweepOrder& order : pairs)
    sweep->take(order.worker, order.check, good(order).result, good(order).figures, kUnixNs);
  EXPECT_TRUE(run(good).empty());
  EXPECT_EQ(node(3).outcome, NodeOutcome::kPassed);
  EXPECT_EQ(node(3).record->measurements,
            (Measurements{{"gemm", 5, "TFLOP/s"}, {"all_reduce", 10, "GB/s"}}));
  EXPECT_EQ(sweep->stage_text(), "4 nodes passed, 0 failed, 0 skipped");
}

TEST_F(SweepTest, AWrongResultExcludesTheNodeAtOnce) {
  begin(3);
  const auto excluded = run([](const SweepOrder& order) {
    Answer answer = good(order);
    if (order.worker.value() == "node1") {
      answer.result = {false, 1, "3 of 262144 elements of a GEMM are wrong", ""};
      answer.figures.wrong = true;
    }
    return answer;
  });
  EXPECT_EQ(
      excluded,
      (std::map<std::string, std::string>{{"node1", "3 of 262144 elements of a GEMM are wrong"}}));
  EXPECT_EQ(orders_of["node1"], 1) << "its links are not tested";
  EXPECT_EQ(node(1).outcome, NodeOutcome::kFailed);
}

TEST_F(SweepTest, ASlowNodeIsTriedAgainBeforeItIsExcluded) {
  begin(4, {.links = false});
  const auto excluded = run([](const SweepOrder& order) {
    Answer answer = good(order);
    if (order.worker.value() == "node2") answer.figures.measurements[0].value = 1;
    return answer;
  });
  EXPECT_EQ(excluded.size(), 1U);
  EXPECT_EQ(excluded.at("node2"),
            "gemm is 1 TFLOP/s; the median of the 4 nodes of its kind is 5 TFLOP/s");
  EXPECT_EQ(orders_of["node2"], kTriesMax);
  EXPECT_EQ(orders_of["node1"], 1);
}

TEST_F(SweepTest, ANodeThatIsSlowBesideTwoOthersIsReportedOnly) {
  begin(3, {.links = false});
  EXPECT_TRUE(run([](const SweepOrder& order) {
                Answer answer = good(order);
                if (order.worker.value() == "node2") answer.figures.measurements[0].value = 1;
                return answer;
              }).empty());
  EXPECT_EQ(node(2).outcome, NodeOutcome::kFailed);
  EXPECT_EQ(node(2).sentence,
            "gemm is 1 TFLOP/s; the median of the 3 nodes of its kind is 5 TFLOP/s; it is not "
            "excluded, because fewer than three other nodes of its kind were measured with it");
  EXPECT_FALSE(node(2).record->passed);
}

// The fleet was checked on local disks, and a person checks one node on a file server.
TEST_F(SweepTest, AnotherStorageFolderDoesNotMakeANodeSlow) {
  const Measurements local = {{"gemm", 5, "TFLOP/s"}, {"storage_read", 3, "GB/s"}};
  for (int i = 0; i < 8; ++i) add_history(i, local);
  for (const int nodes : {1, 2}) {
    begin(nodes, {.storage_folder = "/nfs", .links = false});
    EXPECT_TRUE(run([](const SweepOrder& order) {
                  Answer answer = good(order);
                  answer.figures.measurements.push_back({"storage_read", 0.01, "GB/s"});
                  return answer;
                }).empty());
    EXPECT_EQ(node(0).outcome, NodeOutcome::kPassed) << node(0).sentence;
  }
}

// A new driver makes all nodes slow, and a schedule checks one after the other.
TEST_F(SweepTest, ASlowdownOfTheFleetNodeByNodeExcludesNone) {
  for (int i = 0; i < 8; ++i) add_history(i, {{"gemm", 50, "TFLOP/s"}});
  for (int i = 0; i < 8; ++i) {
    sweep.emplace(1, SweepRequest{}, std::vector{WorkerName(absl::StrCat("node", i))}, 100,
                  kUnixNs);
    EXPECT_TRUE(run(good).empty());
    EXPECT_EQ(node(i).outcome, NodeOutcome::kFailed);
    for (const WorkerName& name : sweep->take_final())
      history.add(name, *sweep->nodes().at(name).record);
  }
}

// node4 is on another host, behind a slower network.
TEST_F(SweepTest, ANodeWithSlowLinksIsReportedOnly) {
  begin(8);
  EXPECT_TRUE(run([](const SweepOrder& order) {
                Answer answer = good(order);
                const bool is_slow = order.worker.value() == "node4" && order.order.seat.size > 1;
                if (is_slow) answer.figures.measurements[0].value = 0.1;
                return answer;
              }).empty());
  EXPECT_EQ(node(4).outcome, NodeOutcome::kFailed);
  EXPECT_EQ(node(4).sentence,
            "all-reduce with healthy nodes: 0.1 GB/s instead of 10 GB/s; it is not excluded, "
            "because only failures with three healthy nodes are a reason");
}

TEST_F(SweepTest, AWrongSumIsAFindingThoughItsRepetitionIsRight) {
  begin(4);
  bool was_wrong = false;
  EXPECT_TRUE(run([&](const SweepOrder& order) {
                Answer answer = good(order);
                if (order.order.seat.size == 2 && order.worker.value() == "node3" && !was_wrong) {
                  was_wrong = true;
                  answer.result = {false, 1, "7 of 1024 sums of an all-reduce are wrong", ""};
                  answer.figures.wrong = true;
                }
                return answer;
              }).empty());
  EXPECT_EQ(sweep->findings(),
            std::vector<std::string>{"an all-reduce of node2, node3 returned a wrong sum: node3: 7 "
                                     "of 1024 sums of an all-reduce are wrong"});
}

TEST_F(SweepTest, ANodeThatWasSlowOncePasses) {
  begin(4, {.links = false});
  int slow = 2;
  EXPECT_TRUE(run([&](const SweepOrder& order) {
                Answer answer = good(order);
                if (order.worker.value() == "node2" && slow-- > 0)
                  answer.figures.measurements[0].value = 1;
                return answer;
              }).empty());
  EXPECT_EQ(node(2).record->measurements[0].value, 5);
}

TEST_F(SweepTest, ManySlowNodesAreNotExcluded) {
  begin(9, {.links = false});
  const auto is_slow = [](const SweepOrder& order) { return order.worker.value() >= "node6"; };
  EXPECT_TRUE(run([&](const SweepOrder& order) {
                Answer answer = good(order);
                if (is_slow(order)) answer.figures.measurements[0].value = 1;
                return answer;
              }).empty());
  EXPECT_EQ(sweep->findings(),
            std::vector<std::string>{
                "3 of 9 nodes failed or are slow and are not excluded, because so many have a "
                "common cause; the first is node6: gemm is 1 TFLOP/s; the median of the 9 nodes of "
                "its kind is 5 TFLOP/s"});
  EXPECT_EQ(node(7).outcome, NodeOutcome::kFailed);
}

TEST_F(SweepTest, ANodeThatAJobNeedsIsSkipped) {
  begin(3);
  const auto excluded = run([](const SweepOrder& order) {
    Answer answer = good(order);
    if (order.worker.value() == "node0") {
      answer.result = {false, 0, "ranks need the node", ""};
      answer.figures = {.stopped = true};
    }
    return answer;
  });
  EXPECT_TRUE(excluded.empty());
  EXPECT_EQ(node(0).outcome, NodeOutcome::kSkipped);
  EXPECT_EQ(node(0).sentence, "ranks need the node");
  EXPECT_FALSE(node(0).record);
  EXPECT_EQ(node(1).outcome, NodeOutcome::kPassed);
}

TEST_F(SweepTest, ANodeThatIsNeededDuringAnAllReduceDoesNotBlameItsPeer) {
  begin(2);
  const auto excluded = run([](const SweepOrder& order) {
    Answer answer = good(order);
    if (order.order.seat.size < 2) return answer;
    answer.result = {false, 0, "the peer is gone", ""};
    answer.figures = {.stopped = order.worker.value() == "node1"};
    return answer;
  });
  EXPECT_TRUE(excluded.empty());
  EXPECT_TRUE(sweep->findings().empty());
  EXPECT_EQ(node(0).outcome, NodeOutcome::kPassed);
  EXPECT_EQ(node(1).outcome, NodeOutcome::kPassed) << "of its own tests";
}

TEST_F(SweepTest, ANodeWhoseAllReducesFailIsExcluded) {
  begin(5);
  const auto excluded = run([](const SweepOrder& order) {
    Answer answer = good(order);
    const GroupSeat& seat = order.order.seat;
    if (seat.size > 1 && order.worker.value() == "node2")
      answer.result = {false, 1, "no route to the peer", ""};
    return answer;
  });
  EXPECT_EQ(excluded.size(), 1U);
  EXPECT_EQ(excluded.at("node2"), "all-reduce with healthy nodes: node2: no route to the peer");
  EXPECT_EQ(node(3).outcome, NodeOutcome::kPassed);
}

TEST_F(SweepTest, ABadLinkIsAFinding) {
  begin(4);
  std::map<uint32_t, std::set<std::string>> members;
  const auto excluded = run([&](const SweepOrder& order) {
    Answer answer = good(order);
    // node0 and node1 are the first pair.
    const GroupSeat& seat = order.order.seat;
    const bool is_pair = seat.size == 2 && seat.rendezvous_address == "node0:1" &&
                         (order.worker.value() == "node0" || order.worker.value() == "node1");
    if (is_pair) members[seat.id].insert(order.worker.value());
    if (is_pair && members[seat.id].size() == 2) answer.result = {false, 1, "no answer", ""};
    return answer;
  });
  EXPECT_TRUE(excluded.empty());
  ASSERT_EQ(sweep->findings().size(), 1U);
  EXPECT_EQ(sweep->findings()[0],
            "the link between node0 and node1 is bad: node1: no answer; both nodes work with "
            "others");
}

TEST_F(SweepTest, AFailureThatDoesNotRepeatIsNoted) {
  begin(4, {.links = false});
  const auto excluded = run([&](const SweepOrder& order) {
    Answer answer = good(order);
    if (order.worker.value() == "node1" && orders_of["node1"] == 1)
      answer = {{false, 1, "the disk is full", ""}, {}};
    return answer;
  });
  EXPECT_TRUE(excluded.empty());
  EXPECT_EQ(orders_of["node1"], 2);
  EXPECT_EQ(node(1).outcome, NodeOutcome::kPassed);
  EXPECT_EQ(node(1).sentence, "nothing is wrong with it; an earlier try failed: the disk is full");
}

// The test of the node ends before its device is known, so it has no kind.
TEST_F(SweepTest, AFailureThatRepeatsExcludesTheNode) {
  begin(4, {.links = false});
  const auto excluded = run([&](const SweepOrder& order) {
    return order.worker.value() == "node1" ? Answer{{false, 1, "", ""}, {}} : good(order);
  });
  EXPECT_EQ(excluded, (std::map<std::string, std::string>{{"node1", "it failed"}}));
  EXPECT_EQ(orders_of["node1"], kFailuresMax);
}

TEST_F(SweepTest, AFailureOfAllNodesExcludesNone) {
  begin(12'500, {.storage_folder = "/dtaa"});
  EXPECT_TRUE(run([](const SweepOrder&) {
                return Answer{{false, 1, "making a file in /dtaa: No such file", ""}, {}};
              }).empty());
  EXPECT_EQ(sweep->findings(),
            std::vector<std::string>{
                "12500 of 12500 nodes failed or are slow and are not excluded, because so many "
                "have a common cause; the first is node0: making a file in /dtaa: No such file"});
}

TEST_F(SweepTest, ANodeThatIsNeededAfterAFailureKeepsIt) {
  begin(4, {.links = false});
  run([&](const SweepOrder& order) {
    Answer answer = good(order);
    if (order.worker.value() != "node1") return answer;
    answer.figures.stopped = orders_of["node1"] == 2;
    answer.result = {false, 1, answer.figures.stopped ? "ranks need the node" : "no disk", ""};
    return answer;
  });
  EXPECT_EQ(node(1).outcome, NodeOutcome::kSkipped);
  EXPECT_EQ(node(1).sentence, "ranks need the node; an earlier try failed: no disk");
}

TEST_F(SweepTest, ANodeThatDoesNotAnswerHasFailed) {
  begin(1);
  ASSERT_EQ(advance().size(), 1U);
  ASSERT_TRUE(sweep->deadline());
  const auto expire = [&](bool is_late) {
    sweep->expire([&](const WorkerName&, Instant) { return is_late; }, now, kUnixNs);
  };
  now = *sweep->deadline();
  expire(true);
  EXPECT_TRUE(sweep->is_waiting()) << "it is not late yet";
  sweep->excuse(std::chrono::seconds(5));
  now += std::chrono::seconds(5);
  expire(true);
  EXPECT_TRUE(sweep->is_waiting()) << "no worker could report for 5 s";
  now += std::chrono::seconds(1);
  expire(false);
  EXPECT_TRUE(sweep->is_waiting()) << "its messages have not been read";
  expire(true);
  ASSERT_EQ(advance().size(), 1U) << "a second try";
  now = *sweep->deadline() + std::chrono::seconds(1);
  expire(true);
  EXPECT_TRUE(advance().empty());
  EXPECT_TRUE(sweep->is_over());
  const auto excluded = sweep->take_exclusions();
  ASSERT_EQ(excluded.size(), 1U);
  EXPECT_EQ(excluded[0].reason, "it did not answer in time");
}

// An acceptance test of a node measures for ten minutes each.
TEST_F(SweepTest, TheTimeLimitsIncludeTheMeasurements) {
  using std::chrono::seconds;
  begin(64, {.seconds = 600});
  std::map<int, Duration> limits;
  run([&](const SweepOrder& order) {
    limits[order.order.seat.size] = order.order.deadline;
    EXPECT_GE(*sweep->deadline(), now + order.order.deadline);
    return good(order);
  });
  EXPECT_EQ(limits, (std::map<int, Duration>{{0, seconds(90 + 12 * 600)},
                                             {2, seconds(64 + 3 * 600)},
                                             {64, seconds(188 + 3 * 600)}}));
}

TEST_F(SweepTest, AnswersThatAreNotAwaitedAreIgnored) {
  begin(1);
  const auto orders = advance();
  sweep->take(orders[0].worker, orders[0].check + 1, {false, 1, "bad", ""}, {}, kUnixNs);
  sweep->take(WorkerName("other"), orders[0].check, {false, 1, "bad", ""}, {}, kUnixNs);
  EXPECT_TRUE(sweep->is_waiting());
}

}  // namespace
}  // namespace muster::coordinator
