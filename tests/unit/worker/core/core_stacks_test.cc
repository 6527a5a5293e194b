#include "tests/unit/worker/core/core_fixture.h"

namespace muster::worker {
namespace {

DumpStacks dump(uint64_t id, int32_t samples, std::vector<int32_t> ranks, uint64_t epoch = 1) {
  DumpStacks event;
  event.epoch = Epoch(epoch);
  event.launch = {JobId(1), Attempt(1)};
  event.dump = id;
  event.samples = samples;
  event.apart = seconds(1);
  event.deadline = seconds(2);
  for (const int32_t rank : ranks) event.ranks.emplace_back(rank);
  return event;
}

StackResults answer(const ReadStacks& read) {
  StackResults event{read.launch, read.dump, read.sample, {}, {}, {"kernel"}};
  for (const Rank rank : read.ranks) event.ranks.emplace_back().rank = rank.value();
  return event;
}

class CoreStacks : public CoreTest {
 protected:
  void SetUp() override {
    connect();
    start_up(start(1, 1, 2));
  }
};

TEST_F(CoreStacks, SamplesAreReadAtIntervalsAndReportedAtOnce) {
  auto read = actions_of<ReadStacks>(step(dump(7, 2, {0, 1})));
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].sample, 0);
  EXPECT_EQ(read[0].samples, 2);
  EXPECT_EQ(read[0].ranks, (std::vector<Rank>{Rank(0), Rank(1)}));
  now += milliseconds(300);
  const auto first = actions_of<SendStackReport>(step(answer(read[0])));
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].dump, 7U);
  EXPECT_EQ(first[0].ranks.size(), 2U);
  EXPECT_EQ(first[0].kernel_messages.size(), 1U);
  EXPECT_TRUE(actions_of<ReadStacks>(advance(milliseconds(600))).empty());
  EXPECT_LE(*core.next_deadline(), now + milliseconds(100));
  read = actions_of<ReadStacks>(advance(milliseconds(100)));  // a second after the first request
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].sample, 1);
  EXPECT_EQ(actions_of<SendStackReport>(step(answer(read[0]))).size(), 1U);
  EXPECT_TRUE(actions_of<SendStackReport>(step(answer(read[0]))).empty()) << "twice";
  EXPECT_TRUE(actions_of<ReadStacks>(advance(seconds(5))).empty());
}

TEST_F(CoreStacks, ASlowReaderGetsNoRequestBeforeItAnswers) {
  const auto read = actions_of<ReadStacks>(step(dump(7, 2, {0})));
  EXPECT_TRUE(actions_of<ReadStacks>(advance(seconds(3))).empty());
  const auto actions = step(answer(read.at(0)));
  EXPECT_EQ(actions_of<SendStackReport>(actions).size(), 1U);
  EXPECT_EQ(actions_of<ReadStacks>(advance(Duration::zero())).size(), 1U);
}

TEST_F(CoreStacks, AbsentRanksAreReported) {
  const auto read = actions_of<ReadStacks>(step(dump(7, 1, {1, 5})));
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].ranks, std::vector<Rank>{Rank(1)});
  const auto report = actions_of<SendStackReport>(step(answer(read[0])));
  ASSERT_EQ(report.size(), 1U);
  ASSERT_EQ(report[0].ranks.size(), 2U);
  EXPECT_EQ(report[0].ranks[1].rank, 5);
  EXPECT_FALSE(report[0].ranks[1].stack_problem.empty());
  const auto none = actions_of<SendStackReport>(step(dump(8, 1, {9})));
  ASSERT_EQ(none.size(), 1U) << "nothing to read, and reported at once";
  EXPECT_EQ(none[0].ranks.size(), 1U);
}

TEST_F(CoreStacks, StaleAndSenselessRequestsAreIgnored) {
  EXPECT_TRUE(actions_of<ReadStacks>(step(dump(7, 1, {0}, 0))).empty()) << "of an earlier epoch";
  EXPECT_TRUE(actions_of<ReadStacks>(step(dump(7, 0, {0}))).empty());
  EXPECT_TRUE(actions_of<ReadStacks>(step(dump(7, 1, {}))).empty());
  EXPECT_EQ(actions_of<ReadStacks>(step(dump(7, 1, {0}))).size(), 1U);
  EXPECT_TRUE(actions_of<ReadStacks>(step(dump(7, 1, {0}))).empty()) << "twice";
}

TEST_F(CoreStacks, DumpsAreBoundedAndExpire) {
  size_t read = 0;
  for (uint64_t id = 1; id <= 100; ++id)
    read += actions_of<ReadStacks>(step(dump(id, 1, {0}))).size();
  EXPECT_EQ(read, 16U);
  now += seconds(60);
  EXPECT_EQ(actions_of<ReadStacks>(step(dump(200, 1, {0}))).size(), 1U);
}

TEST_F(CoreStacks, ADumpEndsWithItsStream) {
  const auto read = actions_of<ReadStacks>(step(dump(7, 2, {0})));
  step(Disconnected{StreamEnd::kBroken, "gone"});
  connect(2);
  EXPECT_TRUE(actions_of<SendStackReport>(step(answer(read.at(0)))).empty());
}

TEST_F(CoreStacks, SymbolsAreResolvedAndReported) {
  Symbolize request{Epoch(1), {JobId(1), Attempt(1)}, 9, {"ab", "/lib/x.so"}, {1, 2}};
  const auto read = actions_of<ReadSymbols>(step(request));
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].addresses, (std::vector<uint64_t>{1, 2}));
  const auto sent =
      actions_of<SendSymbols>(step(SymbolResults{9, read[0].module, {{1, {"f()", "", 0}}}}));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].dump, 9U);
  request.epoch = Epoch(0);
  EXPECT_TRUE(actions_of<ReadSymbols>(step(request)).empty());
  request.epoch = Epoch(1);
  request.addresses.resize(100'000);
  EXPECT_TRUE(actions_of<ReadSymbols>(step(request)).empty());
}

TEST_F(CoreStacks, SymbolRequestsAreBoundedUntilTheyAreAnswered) {
  Symbolize request{Epoch(1), {JobId(1), Attempt(1)}, 9, {"ab", "/lib/x.so"}, {}};
  request.addresses.resize(50'000);
  std::vector<ReadSymbols> requests;
  for (int i = 0; i < 100; ++i) {
    for (ReadSymbols& read : actions_of<ReadSymbols>(step(request)))
      requests.push_back(std::move(read));
  }
  EXPECT_EQ(requests.size(), 5U);
  SymbolResults answer{9, request.module, {}};
  answer.symbols.resize(request.addresses.size());
  step(answer);
  EXPECT_EQ(actions_of<ReadSymbols>(step(request)).size(), 1U);
  EXPECT_TRUE(actions_of<ReadSymbols>(step(request)).empty());
}

TEST_F(CoreStacks, HeartbeatsComeFourTimesAsOftenWhileThereAreRanks) {
  advance(seconds(2));
  int with_ranks = 0;
  for (int i = 0; i < 40; ++i)
    with_ranks += static_cast<int>(actions_of<ReadPages>(advance(milliseconds(50))).size());
  EXPECT_EQ(with_ranks, 8);
  step(stop(1, 1, Duration::zero()));
  for (int r = 0; r < 2; ++r) step(RankReaped{key(1, 1, r), -1, 9, -1, ""});
  advance(seconds(2));
  int idle = 0;
  for (int i = 0; i < 40; ++i)
    idle += static_cast<int>(actions_of<SendHeartbeat>(advance(milliseconds(50))).size());
  EXPECT_EQ(idle, 2);
}

// A process that computes and waits changes its state many times a second: that alone is no change
// to report.
TEST_F(CoreStacks, AFlickeringStateIsNotReported) {
  const auto is_reported = [&](char state) {
    PageResults pages;
    RankFigures figures;
    figures.last_progress = now;
    figures.process_state = state;
    figures.last_progress = figures.phase_start = instant_from_ns(5);
    pages.pages.push_back({key(1, 1, 0), figures});
    const auto heartbeats = actions_of<SendHeartbeat>(step(pages));
    return std::any_of(heartbeats.at(0).ranks.begin(), heartbeats.at(0).ranks.end(),
                       [](const RankProgress& rank) { return rank.key == key(1, 1, 0); });
  };
  is_reported('S');
  EXPECT_FALSE(is_reported('R'));
  EXPECT_TRUE(is_reported('T'));
  EXPECT_FALSE(is_reported('T'));
  EXPECT_TRUE(is_reported('D'));
}

}  // namespace
}  // namespace muster::worker
