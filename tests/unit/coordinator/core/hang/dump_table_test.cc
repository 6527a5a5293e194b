#include "coordinator/core/hang/dump_table.h"

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

class DumpTableTest : public testing::Test {
 protected:
  DumpTableTest() : fleet(options) {
    WorkerRegistered event;
    event.worker = WorkerName("a");
    event.slots = 1;
    fleet.add(event, now);
    job.id = JobId(1);
    job.attempt = Attempt(1);
    job.state = JobState::kRunning;
    job.placement.push_back({Rank(0), event.worker, 0, Incarnation{}});
    job.ranks.emplace_back().life = RankState::Life::kUp;
  }

  absl::StatusOr<std::vector<SendToWorker>> request(Rank rank = Rank(-1)) {
    StacksRequested event;
    event.token = RequestToken(++token);
    event.job = job.id;
    event.rank = rank;
    return dumps.request(event, job, fleet, &unreachable, options, now);
  }
  // The worker's report on dump `id`, with one frame in a module if it `has_module`.
  void report(DumpId id, bool has_module) {
    StackReportReceived event;
    event.worker = WorkerName("a");
    event.dump = id;
    event.job = job.id;
    event.attempt = job.attempt;
    RankEvidence& rank = event.ranks.emplace_back();
    rank.rank = 0;
    StackSample stacks;
    if (has_module) stacks.modules.push_back({"1234", "/bin/trainer"});
    RankStacks& read = stacks.ranks.emplace_back();
    read.rank = 0;
    ThreadStack& thread = read.threads.emplace_back();
    thread.name = "main";
    thread.frames.push_back({has_module ? 0 : kNoModule, 64, has_module ? "" : "main"});
    event.stacks.add(stacks);
    ASSERT_TRUE(dumps.find(id)->dump.add(event));
  }
  ActionList answer(DumpId id) {
    return dumps.answer_if_over(id, fleet, &unreachable, options, now);
  }

  CoreOptions options;
  Instant now = instant_from_ns(1'000'000'000'000);
  Fleet fleet;
  DumpTable dumps;
  IncidentBook incidents;
  Job job;
  std::set<WorkerName> unreachable;
  uint64_t token = 0;
};

TEST_F(DumpTableTest, RequestsThatCannotBeAnsweredAreRefused) {
  EXPECT_EQ(request(Rank(1)).status().message(), "rank is 1: job 1 has ranks 0 to 0");
  EXPECT_EQ(request(Rank(-2)).status().code(), absl::StatusCode::kInvalidArgument);
  unreachable.insert(WorkerName("a"));
  EXPECT_EQ(request().status().message(),
            "no worker with a running rank of job 1 is connected now; try again");
  job.state = JobState::kQueued;
  EXPECT_EQ(request().status().message(), "job 1 is not running (QUEUED): it has no stacks");
}

TEST_F(DumpTableTest, AtMostThreeUsersWaitForDumps) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(request().ok());
  EXPECT_EQ(request().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(dumps.requested().size(), 3U);
}

TEST_F(DumpTableTest, AnAnswerWithoutModulesNeedsNoLookup) {
  ASSERT_TRUE(request().ok());
  EXPECT_TRUE(answer(DumpId(1)).empty()) << "the report is missing";
  report(DumpId(1), false);
  const ActionList actions = answer(DumpId(1));
  ASSERT_EQ(actions.size(), 1U);
  const auto& reply = std::get<ReplyStacks>(actions.front());
  EXPECT_EQ(reply.token, RequestToken(1));
  EXPECT_EQ(reply.dump.ranks.size(), 1U);
  EXPECT_TRUE(dumps.requested().empty());
}

TEST_F(DumpTableTest, AnAnswerWaitsForItsSymbolsUntilTheirDeadline) {
  ASSERT_TRUE(request().ok());
  report(DumpId(1), true);
  ActionList actions = answer(DumpId(1));
  ASSERT_EQ(actions.size(), 1U);
  const auto& message = std::get<SendToWorker>(actions.front());
  const auto& lookup = std::get<SendSymbolize>(message.payload);
  EXPECT_EQ(lookup.addresses, std::vector<uint64_t>{64});
  EXPECT_TRUE(dumps.end_late_lookups(incidents, now).empty());

  SymbolsReceived symbols;
  symbols.dump = lookup.dump;
  symbols.module = lookup.module;
  const std::optional<ReplyStacks> reply = dumps.add(symbols, incidents);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->token, RequestToken(1));
  EXPECT_FALSE(dumps.add(symbols, incidents)) << "a duplicate";

  ASSERT_TRUE(request().ok());
  report(DumpId(3), true);
  ASSERT_EQ(answer(DumpId(3)).size(), 1U);
  now += options.symbols_wait;
  EXPECT_EQ(dumps.end_late_lookups(incidents, now).size(), 1U);
}

TEST_F(DumpTableTest, AnIncidentIsRetainedUntilItsSymbolsAreThere) {
  const auto begun =
      dumps.begin(job, Rank(-1), {1, options.sample_deadline}, {}, fleet, {}, options, now);
  ASSERT_TRUE(begun);
  report(begun->id, true);
  const Dump dump = dumps.take(begun->id).dump;
  Incident fresh;
  fresh.job = job.id;
  const IncidentId id = incidents.open(std::move(fresh));
  const auto look_up = [&] {
    return dumps.look_up(incidents, id, dump, blame_input(job, dump, {}), fleet, options, now);
  };
  ASSERT_EQ(look_up().size(), 1U);
  ASSERT_EQ(look_up().size(), 1U) << "replaces the earlier one";
  incidents.close(id);
  EXPECT_NE(incidents.find(id), nullptr);
  now += options.symbols_wait;
  EXPECT_TRUE(dumps.end_late_lookups(incidents, now).empty()) << "no user waits";
  EXPECT_EQ(incidents.take_changes().stored.size(), 1U);
  EXPECT_EQ(incidents.find(id), nullptr) << "the book no longer retains the incident";
}

}  // namespace
}  // namespace muster::coordinator
