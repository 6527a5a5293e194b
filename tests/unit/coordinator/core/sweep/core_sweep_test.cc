// Deep checks as the core begins and ends them.
#include <algorithm>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "coordinator/core/core.h"

namespace muster::coordinator {
namespace {

using std::chrono::seconds;

class CoreSweepTest : public testing::Test {
 protected:
  static CoreOptions options(Duration every) {
    CoreOptions made;
    made.version = "1";
    made.idle_check_every = every;
    return made;
  }
  void begin(int workers, Duration every = Duration::zero()) {
    core.emplace(options(every), DurableState{}, now);
    for (int i = 0; i < workers; ++i) add_worker(i);
  }
  void add_worker(int i) {
    WorkerRegistered event;
    event.worker = WorkerName(absl::StrCat("node", i));
    event.incarnation = Incarnation(1);
    event.version = "1";
    event.host = "host";
    event.slots = 1;
    event.rendezvous_address = "host:1";
    step(event);
  }
  void disconnect(int i) {
    step(WorkerDisconnected{WorkerName(absl::StrCat("node", i)), Incarnation(1), unix_ns});
  }
  void step(Event event) {
    std::visit([&](auto& e) { e.unix_ns = unix_ns; }, event);
    ActionList out;
    core->step(event, now, out);
    actions += out.size();
    for (Action& action : out) {
      if (const auto* reply = std::get_if<Reply>(&action)) replies.push_back(reply->status);
      if (const auto* stored = std::get_if<PersistDeepChecks>(&action))
        persisted[stored->worker.value()] = stored->checks.size();
      const auto* sent = std::get_if<SendToWorker>(&action);
      if (sent == nullptr) continue;
      const auto* check = std::get_if<SendCheckNode>(&sent->payload);
      if (check != nullptr && check->deep) orders.push_back({sent->worker, check->check});
    }
  }
  static NodeSweepRequested request(uint64_t token) {
    NodeSweepRequested event;
    event.token = RequestToken(token);
    return event;
  }
  void advance(Duration time) {
    now += time;
    unix_ns += time.count();
    heartbeats();
    step(Tick{});
  }
  void answer(const WorkerName& name, uint64_t check, bool is_good, bool is_wrong = false) {
    NodeChecked event;
    event.worker = name;
    event.incarnation = Incarnation(1);
    event.check = check;
    event.result = {is_good, 1, is_good ? "good" : "wrong", ""};
    event.deep = DeepCheckFigures{
        .kind = "cpu", .measurements = {{"gemm", 5, "TFLOP/s"}}, .wrong = is_wrong};
    step(event);
  }
  void answer_all(const std::string& bad = "") {
    while (!orders.empty()) {
      for (const auto& [name, check] : std::exchange(orders, {}))
        answer(name, check, name.value() != bad);
    }
  }
  // Lets time pass until after the deadline of the sweep, in which the workers report or not.
  void pass_deadline(const Tick& tick, bool workers_report) {
    ASSERT_TRUE(core->sweep()->deadline());
    while (now <= *core->sweep()->deadline()) {
      now += seconds(1);
      unix_ns += 1'000'000'000;
      if (workers_report) heartbeats();
    }
    step(tick);
  }
  void heartbeats() {
    for (const auto& [name, worker] : std::map(core->workers()))
      step(HeartbeatReceived{name, worker.incarnation, {}, unix_ns});
  }
  bool is_excluded(int i) {
    const auto node = core->nodes().find(WorkerName(absl::StrCat("node", i)));
    return node != core->nodes().end() && node->second.excluded;
  }
  void submit() {
    JobSpec spec;
    spec.name = "job";
    spec.user = "me";
    spec.nodes = 1;
    spec.ranks_per_node = 4;  // more than a node has
    spec.output_directory = "/out";
    step(JobSubmitted{RequestToken(1), "request", spec, unix_ns});
  }

  Instant now = instant_from_ns(1'000'000'000'000);
  int64_t unix_ns = 1'700'000'000'000'000'000;
  std::optional<Core> core;
  size_t actions = 0;
  std::vector<absl::Status> replies;
  std::map<std::string, size_t> persisted;
  std::vector<std::pair<WorkerName, uint64_t>> orders;
};

TEST_F(CoreSweepTest, ARequestChecksIdleNodesAndStoresTheResults) {
  begin(2);
  step(request(1));
  ASSERT_EQ(replies.size(), 1U);
  EXPECT_TRUE(replies[0].ok()) << replies[0];
  EXPECT_EQ(orders.size(), 2U);
  step(request(2));
  EXPECT_EQ(replies[1].code(), absl::StatusCode::kFailedPrecondition) << replies[1];
  answer_all("node1");
  EXPECT_TRUE(core->sweep()->is_over());
  const NodeRecord& node = core->nodes().at(WorkerName("node1"));
  EXPECT_TRUE(node.excluded);
  EXPECT_EQ(node.suspicion, Suspicion::kDeepCheckFailed);
  EXPECT_EQ(node.until_unix_ns, 0);
  EXPECT_EQ(persisted, (std::map<std::string, size_t>{{"node0", 1}, {"node1", 1}}));
  step(NodeAdmitRequested{RequestToken(3), WorkerName("node1"), unix_ns});
  EXPECT_FALSE(core->nodes().contains(WorkerName("node1")) &&
               core->nodes().at(WorkerName("node1")).excluded);
}

TEST_F(CoreSweepTest, BadRequestsAreRefusedWithTheField) {
  begin(1);
  NodeSweepRequested event = request(1);
  event.seconds = 0.01;
  step(event);
  EXPECT_NE(replies.back().message().find("seconds is 0.01; it must be from 0.1 to 600"),
            std::string::npos)
      << replies.back();
  event = request(2);
  event.storage_folder = "data";
  step(event);
  EXPECT_NE(replies.back().message().find("storage_folder is \"data\""), std::string::npos);
  event = request(3);
  event.workers = {WorkerName("x")};
  step(event);
  EXPECT_EQ(replies.back().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(orders.empty());
}

TEST_F(CoreSweepTest, IdleNodesAreCheckedWhenTheirCheckIsOld) {
  begin(2, seconds(3600));
  advance(seconds(1));
  EXPECT_EQ(orders.size(), 2U);
  answer_all();
  for (int i = 0; i < 3000; i += 10) advance(seconds(10));
  EXPECT_TRUE(orders.empty());
  for (int i = 0; i < 1200; i += 10) advance(seconds(10));
  EXPECT_EQ(orders.size(), 2U);
}

// The job needs larger nodes than these, and may wait for days.
TEST_F(CoreSweepTest, AScheduledCheckBeginsWhileAJobWaits) {
  begin(2, seconds(3600));
  submit();
  for (int i = 0; i < 20; ++i) advance(seconds(60));
  EXPECT_EQ(orders.size(), 2U);
}

// An acceptance test of many nodes takes hours, in which jobs must not use the bad node.
TEST_F(CoreSweepTest, AWrongResultExcludesItsNodeWhileOthersAreTested) {
  begin(4);
  step(request(1));
  const auto first = std::exchange(orders, {});
  answer(first[2].first, first[2].second, false, true);
  EXPECT_FALSE(core->sweep()->is_over());
  EXPECT_TRUE(is_excluded(2));
  EXPECT_EQ(persisted, (std::map<std::string, size_t>{{"node2", 1}}));
  for (const int i : {0, 1, 3}) answer(first[i].first, first[i].second, true);
  answer_all();
  EXPECT_EQ(persisted.size(), 4U);
  EXPECT_EQ(core->deep_checks().of(WorkerName("node2")).size(), 1U) << "it is stored once";
}

// Other exclusions end by themselves, so one until admission takes the node out of the fleet.
TEST_F(CoreSweepTest, NodesThatAreExcludedForAWhileCountAsWell) {
  begin(8);
  for (int i = 0; i < 8; ++i) {
    const WorkerName name(absl::StrCat("node", i));
    NodeExcludeRequested exclude;
    exclude.token = RequestToken(static_cast<uint64_t>(i) + 100);
    exclude.worker = name;
    exclude.reason = "a short repair";
    exclude.time = seconds(3600);
    step(exclude);
    NodeSweepRequested event = request(static_cast<uint64_t>(i) + 1);
    event.workers = {name};
    step(event);
    answer_all(name.value());
    const NodeRecord& node = core->nodes().at(name);
    EXPECT_TRUE(node.excluded);
    EXPECT_EQ(node.until_unix_ns == 0, i < 2) << i;
  }
}

// Links need several nodes, so nodes that are half due join those that are due.
TEST_F(CoreSweepTest, NodesThatAreSoonDueJoinTheOthers) {
  begin(1, seconds(3600));
  advance(seconds(1));
  answer_all();
  advance(seconds(2400));
  add_worker(1);
  advance(seconds(300));
  EXPECT_EQ(core->sweep()->nodes().size(), 2U);
  EXPECT_EQ(orders.size(), 2U);
}

TEST_F(CoreSweepTest, ANodeWhoseWorkerIsLostIsSkipped) {
  begin(2);
  step(request(1));
  disconnect(0);
  EXPECT_EQ(core->sweep()->nodes().at(WorkerName("node0")).outcome, NodeOutcome::kSkipped);
  answer_all();
  EXPECT_TRUE(core->sweep()->is_over());
  EXPECT_EQ(core->sweep()->nodes().at(WorkerName("node1")).outcome, NodeOutcome::kPassed);
}

// node0 is lost after its own tests, so the orders of its pair do not reach it.
TEST_F(CoreSweepTest, AWorkerThatIsLostBetweenTwoRoundsEndsNoSweep) {
  begin(2);
  step(request(1));
  const auto own = std::exchange(orders, {});
  answer(own[0].first, own[0].second, true);
  disconnect(0);
  answer(own[1].first, own[1].second, true);
  answer_all();
  EXPECT_TRUE(core->sweep()->is_over());
  EXPECT_TRUE(core->sweep()->findings().empty());
  EXPECT_FALSE(is_excluded(1));
}

TEST_F(CoreSweepTest, AWorkerThatReportsAndDoesNotAnswerIsLate) {
  begin(1);
  step(request(1));
  const auto first = std::exchange(orders, {});
  pass_deadline(Tick{.is_behind = true}, true);
  EXPECT_TRUE(orders.empty()) << "messages of many workers have not been read";
  Tick unread;
  unread.unread = {WorkerName("node0")};
  step(unread);
  EXPECT_TRUE(orders.empty()) << "its answer may be unread";
  step(Tick{});
  ASSERT_EQ(orders.size(), 1U) << "the second try";
  answer(first[0].first, first[0].second, true);
  EXPECT_FALSE(core->sweep()->is_over()) << "the first try is over";
  pass_deadline(Tick{}, true);
  EXPECT_TRUE(is_excluded(0));
}

TEST_F(CoreSweepTest, SilenceDuringAnOutageIsNoFailure) {
  begin(4);
  step(request(1));
  orders.clear();
  pass_deadline(Tick{}, false);
  EXPECT_TRUE(orders.empty());
  heartbeats();  // the outage was no time in which the workers could answer
  step(Tick{});
  EXPECT_TRUE(orders.empty());
  EXPECT_TRUE(core->nodes().empty());
  pass_deadline(Tick{}, true);
  EXPECT_EQ(orders.size(), 4U);
}

// A job that ends one sweep of a node after the other finds the same cause again and again.
TEST_F(CoreSweepTest, SeparateSweepsExcludeOnlyAPartOfTheFleet) {
  begin(8);
  for (int i = 0; i < 8; ++i) {
    NodeSweepRequested event = request(static_cast<uint64_t>(i) + 1);
    event.workers = {WorkerName(absl::StrCat("node", i))};
    step(event);
    answer_all(absl::StrCat("node", i));
  }
  EXPECT_TRUE(is_excluded(0) && is_excluded(1));
  for (int i = 2; i < 8; ++i) EXPECT_FALSE(is_excluded(i)) << i;
  EXPECT_EQ(core->sweep()->findings(),
            std::vector<std::string>{
                "node7 is not excluded for its deep check, because 2 of 8 nodes are excluded for "
                "theirs: wrong"});
}

TEST_F(CoreSweepTest, AWorkerOfAnotherVersionIsNotChecked) {
  begin(1);
  WorkerRegistered event;
  event.worker = WorkerName("old");
  event.incarnation = Incarnation(1);
  event.version = "0";
  event.host = "host2";
  event.slots = 1;
  event.running = {{JobId(7), Attempt(1), Rank(0), 1}};
  event.rendezvous_address = "host2:1";
  step(event);
  ASSERT_TRUE(core->workers().contains(WorkerName("old")));
  step(request(1));
  EXPECT_EQ(core->sweep()->nodes().at(WorkerName("old")).sentence,
            "its worker has version 0, the coordinator 1");
}

TEST_F(CoreSweepTest, AnExclusionOutlastsADrain) {
  begin(2);
  step(request(1));
  answer_all("node1");
  NodeExcludeRequested drain;
  drain.token = RequestToken(2);
  drain.worker = WorkerName("node1");
  drain.reason = "kernel update";
  drain.time = seconds(60);
  drain.drain_unix_ns = unix_ns + 1'000'000'000;
  step(drain);
  EXPECT_TRUE(replies.back().ok()) << replies.back();
  for (int i = 0; i < 20; ++i) advance(seconds(10));
  const NodeRecord& node = core->nodes().at(WorkerName("node1"));
  EXPECT_TRUE(node.excluded);
  EXPECT_EQ(node.suspicion, Suspicion::kDeepCheckFailed);
  EXPECT_EQ(node.until_unix_ns, 0);
}

TEST_F(CoreSweepTest, ARankOfAJobEndsTheCheckOfItsNodeAlone) {
  begin(2);
  step(request(1));
  NodeChecked stopped;
  stopped.worker = WorkerName("node0");
  stopped.incarnation = Incarnation(1);
  stopped.check = orders[0].second;
  stopped.result.sentence = "ranks need the node";
  stopped.deep = DeepCheckFigures{.stopped = true};
  step(stopped);
  orders.erase(orders.begin());
  answer_all();
  EXPECT_FALSE(is_excluded(0));
  EXPECT_EQ(persisted, (std::map<std::string, size_t>{{"node1", 1}}));
}

// Orders, stored results and all other actions grow in proportion to the nodes.
TEST_F(CoreSweepTest, ALargeFleetIsChecked) {
  const auto count_actions = [&](int nodes) {
    begin(nodes);
    persisted.clear();
    actions = 0;
    step(request(1));
    EXPECT_EQ(orders.size(), static_cast<size_t>(nodes));
    answer_all("node77");
    EXPECT_TRUE(core->sweep()->is_over());
    EXPECT_EQ(persisted.size(), static_cast<size_t>(nodes));
    EXPECT_TRUE(is_excluded(77));
    EXPECT_FALSE(is_excluded(76));
    return actions;
  };
  const size_t few = count_actions(3'125);
  const size_t many = count_actions(12'500);
  EXPECT_GE(few, size_t{3 * 3'125}) << "an own test, a pair and a result of each node";
  EXPECT_LE(many, 4 * few + few / 2);
}

}  // namespace
}  // namespace muster::coordinator
