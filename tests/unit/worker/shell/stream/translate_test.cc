#include "worker/shell/stream/translate.h"

#include <iterator>
#include <limits>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "common/job/limits.h"
#include "common/random/philox.h"
#include "daemon/gpu_messages.h"

namespace muster::worker {
namespace {

TEST(Translate, AStartCarriesEverything) {
  v1::CoordinatorMessage message;
  message.set_epoch(3);
  v1::StartRanks* start = message.mutable_start_ranks();
  start->set_job_id(7);
  start->set_attempt(2);
  start->set_rendezvous_address("127.0.0.1:1");
  start->mutable_spec()->set_nodes(2);
  start->mutable_spec()->set_ranks_per_node(4);
  start->mutable_spec()->set_train_config_json("{}");
  (*start->mutable_spec()->mutable_environment())["A"] = "b";
  start->add_ranks()->set_rank(5);
  start->mutable_ranks(0)->set_local_rank(1);
  start->set_rendezvous_ms(30'000);
  const auto event = to_event(message);
  ASSERT_TRUE(event.ok()) << event.status();
  const auto& translated = std::get<StartRanks>(*event);
  EXPECT_EQ(translated.epoch, Epoch(3));
  EXPECT_EQ(translated.launch.job, JobId(7));
  EXPECT_EQ(translated.launch.spec.world_size(), 8);
  EXPECT_EQ(translated.launch.rendezvous_time, std::chrono::seconds(30));
  EXPECT_EQ(translated.launch.spec.environment.at("A"), "b");
  EXPECT_EQ(translated.launch.ranks[0], (RankAssignment{Rank(5), 1}));
}

TEST(Translate, FieldsOverTheirBoundsAreRefused) {
  v1::CoordinatorMessage message;
  message.mutable_start_ranks()->mutable_spec()->set_train_config_json(
      std::string(kTrainConfigBytesMax + 1, 'x'));
  EXPECT_FALSE(to_event(message).ok());
  message.mutable_start_ranks()->mutable_spec()->set_train_config_json("");
  message.mutable_start_ranks()->set_rendezvous_address(std::string(10'000, 'x'));
  EXPECT_FALSE(to_event(message).ok());
  EXPECT_FALSE(to_event({}).ok());
}

TEST(Translate, ADumpIsRequestedAndAnswered) {
  v1::CoordinatorMessage message;
  message.set_epoch(3);
  v1::DumpStacks& dump = *message.mutable_dump_stacks();
  dump.set_job_id(7);
  dump.set_attempt(2);
  dump.set_dump_id(9);
  dump.set_samples(2);
  dump.set_apart_ms(1'000);
  dump.set_deadline_ms(-5);
  dump.add_ranks(4);
  const auto event = to_event(message);
  ASSERT_TRUE(event.ok()) << event.status();
  const auto& requested = std::get<DumpStacks>(*event);
  EXPECT_EQ(requested.epoch, Epoch(3));
  EXPECT_EQ(requested.launch, (LaunchKey{JobId(7), Attempt(2)}));
  EXPECT_EQ(requested.dump, 9U);
  EXPECT_EQ(requested.samples, 2);
  EXPECT_EQ(requested.apart, std::chrono::seconds(1));
  EXPECT_EQ(requested.deadline, Duration::zero());
  EXPECT_EQ(requested.ranks, std::vector<Rank>{Rank(4)});

  SendStackReport report{requested.launch, 9, 1, nullptr, {}, {"oom", "killer\x1b"}};
  EXPECT_EQ(to_message(report).stack_report().stacks().nodes_size(), 0);
  report.ranks.emplace_back().rank = 4;
  StackSample sample;
  sample.ranks.push_back({4, 1, "", {{1, "main", 'S', {{kNoModule, 0, "[jit]"}}, false}}, ""});
  auto stacks = std::make_shared<StackTree>();
  stacks->add(sample);
  report.stacks = std::move(stacks);
  const v1::StackReport sent = to_message(report).stack_report();
  EXPECT_EQ(sent.job_id(), 7U);
  EXPECT_EQ(sent.attempt(), 2U);
  EXPECT_EQ(sent.dump_id(), 9U);
  EXPECT_EQ(sent.sample(), 1);
  EXPECT_EQ(sent.ranks(0).rank(), 4);
  EXPECT_EQ(sent.kernel_messages(1), "killer\\x1b");
  EXPECT_GE(sent.stacks().nodes_size(), 1);
}

TEST(Translate, SymbolsThatHaveNoRoomLeaveTheirAddresses) {
  v1::CoordinatorMessage message;
  message.mutable_symbolize()->set_dump_id(9);
  message.mutable_symbolize()->mutable_module()->set_path("/bin/x");
  message.mutable_symbolize()->add_addresses(16);
  const auto event = to_event(message);
  ASSERT_TRUE(event.ok());
  EXPECT_EQ(std::get<Symbolize>(*event).module.path, "/bin/x");
  EXPECT_EQ(std::get<Symbolize>(*event).addresses, std::vector<uint64_t>{16});

  SendSymbols symbols{9, {"ab", "/bin/x"}, {}};
  for (uint64_t address = 0; address < 20'000; ++address)
    symbols.symbols.push_back({address, {std::string(500, 'f'), "file.cc", 3}});
  const v1::WorkerMessage sent = to_message(symbols);
  EXPECT_LT(sent.ByteSizeLong(), size_t{4} << 20);
  ASSERT_EQ(sent.symbols().symbols_size(), 20'000);
  EXPECT_EQ(sent.symbols().symbols(0).file(), "file.cc");
  EXPECT_EQ(sent.symbols().symbols(19'999).file(), "");
  EXPECT_EQ(sent.symbols().symbols(19'999).address(), 19'999U);
}

TEST(Translate, TimesFromOutsideDoNotOverflow) {
  for (const int64_t ms :
       {std::numeric_limits<int64_t>::min(), int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    v1::CoordinatorMessage message;
    message.mutable_stop_ranks()->set_grace_ms(ms);
    const auto event = to_event(message);
    ASSERT_TRUE(event.ok());
    EXPECT_GE(std::get<StopRanks>(*event).grace, Duration::zero());
    EXPECT_LE(std::get<StopRanks>(*event).grace, std::chrono::hours(24));
  }
}

TEST(Translate, MutatedBytesAreAnEventOrAnError) {
  v1::CoordinatorMessage message;
  message.mutable_start_ranks()->set_job_id(1);
  message.mutable_start_ranks()->mutable_spec()->set_nodes(1);
  message.mutable_start_ranks()->add_ranks()->set_rank(1);
  const std::string good = message.SerializeAsString();
  for (uint64_t i = 0; i < 20'000; ++i) {
    const Philox::Block random = Philox{9, 9}(i);
    std::string bytes = good;
    bytes[random[0] % bytes.size()] = static_cast<char>(random[1]);
    bytes[random[2] % bytes.size()] = static_cast<char>(random[3]);
    v1::CoordinatorMessage mutated;
    if (mutated.ParseFromString(bytes)) (void)to_event(mutated);
  }
}

TEST(Translate, AHeartbeatCarriesEveryStep) {
  SendHeartbeat heartbeat;
  RankProgress& rank = heartbeat.ranks.emplace_back();
  rank.key = {JobId(1), Attempt(2), Rank(3)};
  for (int i = 0; i < 500; ++i) rank.figures.step_times.add(0.5);
  rank.figures.stalled_links = {{"10.0.0.2", 28001, true, 5}};
  rank.figures.main_thread = {120, 100};
  const v1::WorkerMessage message = to_message(heartbeat);
  const v1::RankProgress& sent = message.heartbeat().ranks(0);
  ASSERT_EQ(sent.stalled_links_size(), 1);
  EXPECT_EQ(sent.stalled_links(0).host(), "10.0.0.2");
  EXPECT_EQ(sent.stalled_links(0).port(), 28001);
  EXPECT_TRUE(sent.stalled_links(0).is_connecting());
  EXPECT_EQ(sent.stalled_links(0).repetitions(), 5);
  EXPECT_EQ(sent.main_thread_samples(), 120U);
  EXPECT_EQ(sent.main_thread_awake(), 100U);
  const v1::StepTimes& times = sent.step_times();
  ASSERT_EQ(times.counts_size(), std::ssize(rank.figures.step_times.counts));
  EXPECT_EQ(std::accumulate(times.counts().begin(), times.counts().end(), uint64_t{0}), 500U);
  EXPECT_DOUBLE_EQ(times.seconds(), 250);
}

TEST(Translate, OnlyALeavingWorkersRegistrationHasLeaving) {
  SendRegister registration;
  EXPECT_FALSE(to_message(registration).register_().has_leaving());
  registration.gpus = {
      {.index = 3, .uuid = "GPU-1", .name = "H100", .memory_bytes = 80, .numa_node = -1}};
  const v1::WorkerMessage with_gpu = to_message(registration);
  ASSERT_EQ(with_gpu.register_().gpus_size(), 1);
  EXPECT_EQ(daemon::gpu_from_proto(with_gpu.register_().gpus(0)), registration.gpus[0]);
  registration.addresses = {"10.0.0.1", "fd00::1"};
  EXPECT_EQ(to_message(registration).register_().addresses(1), "fd00::1");
  registration.leaving = std::chrono::microseconds(2'500'900);
  EXPECT_EQ(to_message(registration).register_().leaving().grace_ms(), 2'500);
  EXPECT_EQ(to_message(SendLeaving{std::chrono::seconds(3)}).leaving().grace_ms(), 3'000);
}

TEST(Translate, OutgoingTextIsAlwaysValid) {
  SendRankExited report;
  report.key = {JobId(1), Attempt(2), Rank(3)};
  report.detail = "bad \xFF\x01 bytes";
  const v1::WorkerMessage message = to_message(report);
  EXPECT_EQ(message.rank_exited().detail(), R"(bad \xff\x01 bytes)");
  EXPECT_EQ(message.rank_exited().rank(), 3);
  v1::WorkerMessage parsed;
  EXPECT_TRUE(parsed.ParseFromString(message.SerializeAsString()));
}

TEST(Translate, AnEndCarriesBoundedEvidence) {
  SendRankExited report;
  report.key = {JobId(1), Attempt(2), Rank(3)};
  EXPECT_EQ(to_message(report).rank_exited().evidence_size(), 0);
  auto left = std::make_shared<EndEvidence>();
  left->rank.rank = 3;
  left->rank.step = 41;
  left->rank.last_lines.assign(100, std::string(10'000, 'x'));
  left->kernel_messages.assign(1'000, std::string(10'000, 'y'));
  report.evidence = left;
  const v1::WorkerMessage message = to_message(report);
  ASSERT_EQ(message.rank_exited().evidence_size(), 1);
  EXPECT_EQ(message.rank_exited().evidence(0).step(), 41);
  EXPECT_EQ(message.rank_exited().evidence(0).last_lines_size(), int{kEvidenceLinesMax});
  EXPECT_LT(message.ByteSizeLong(), 64U << 10);
}

}  // namespace
}  // namespace muster::worker
