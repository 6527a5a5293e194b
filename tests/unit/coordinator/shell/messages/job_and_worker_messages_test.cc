// Values of a worker's heartbeat, and their conversion for the core.
#include "coordinator/shell/messages/job_and_worker_messages.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "common/job/limits.h"
#include "coordinator/core/queue/input_limits.h"
#include "coordinator/core/records/sizes.h"
#include "coordinator/shell/grpc/payload_bytes.h"
#include "daemon/limits.h"
#include "muster/v1/muster.grpc.pb.h"

namespace muster::coordinator {
namespace {

TEST(HeartbeatFromProto, NonFiniteAndHugeNumbersAreSanitised) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  v1::Heartbeat heartbeat;
  for (const int64_t age :
       {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), int64_t{5}}) {
    v1::RankProgress& rank = *heartbeat.add_ranks();
    rank.set_last_progress_age_ns(age);
    rank.set_loss(kNan);
    rank.set_tokens_per_second(kNan);
    rank.set_step_seconds(-kInfinity);
    rank.set_tflops_per_device(kInfinity);
    rank.set_device_peak_tflops(312);
  }
  const HeartbeatReceived event = heartbeat_from_proto(heartbeat);
  ASSERT_EQ(event.ranks.size(), 3U);
  EXPECT_EQ(event.ranks[0].last_progress_age, Duration::zero());
  EXPECT_EQ(event.ranks[1].last_progress_age, std::chrono::hours(365 * 24));
  EXPECT_EQ(event.ranks[2].last_progress_age, Duration(5));
  EXPECT_EQ(event.ranks[0].tokens_per_second, 0);
  EXPECT_EQ(event.ranks[0].step_seconds, 0);
  EXPECT_EQ(event.ranks[0].tflops_per_device, 0);
  EXPECT_EQ(event.ranks[0].device_peak_tflops, 312);
  EXPECT_TRUE(std::isnan(event.ranks[0].loss)) << "users must see a NaN loss";
}

TEST(HeartbeatFromProto, LinksAndSamplesHaveBounds) {
  v1::Heartbeat heartbeat;
  v1::RankProgress& rank = *heartbeat.add_ranks();
  rank.set_main_thread_samples(4);
  rank.set_main_thread_awake(5);
  for (size_t i = 0; i < 2 * kStalledLinksMax; ++i) {
    v1::StalledLink& link = *rank.add_stalled_links();
    link.set_host(i == 0 ? "10.0.0.2\n" : std::string(1'000, 'x'));
    link.set_port(28001);
    link.set_is_connecting(i == 0);
  }
  const HeartbeatReceived event = heartbeat_from_proto(heartbeat);
  EXPECT_EQ(event.ranks[0].main_thread, (ThreadSamples{4, 4}));
  const std::vector<StalledLink>& links = event.ranks[0].stalled_links;
  ASSERT_EQ(links.size(), kStalledLinksMax);
  EXPECT_EQ(links[0].host.find('\n'), std::string::npos);
  EXPECT_EQ(links[0].port, 28001);
  EXPECT_TRUE(links[0].is_connecting);
  EXPECT_FALSE(links[1].is_connecting);
  EXPECT_LE(links[1].host.size(), kHostAddressBytesMax + 3) << "with an ellipsis";
}

// The largest spec that check_spec() accepts, for as many ranks as a node may have, fits into one
// message.
TEST(MessageToProto, StartRanksOfTheLargestSpecFits) {
  auto spec = std::make_shared<JobSpec>();
  spec->train_config_json = std::string(kTrainConfigBytesMax, ' ');
  const InputLimits limits;
  for (int i = 0; bytes_of(*spec) < limits.spec_bytes_max - limits.environment_value_bytes_max; ++i)
    spec->environment[std::to_string(i)] = std::string(limits.environment_value_bytes_max - 8, 'x');
  SendStartRanks order{JobId(1), Attempt(1), spec, {}, "host:1", 0, -1};
  for (int32_t rank = 0; rank < kRanksPerNodeMax; ++rank)
    order.ranks.push_back({Rank(1'000'000 + rank), WorkerName(std::string(kNameBytesMax, 'w')),
                           rank, Incarnation(1)});
  const size_t bytes = PayloadBytes(Epoch(1)).of(order).Length();
  EXPECT_GT(bytes, size_t{5} << 18);
  EXPECT_LT(bytes, static_cast<size_t>(daemon::kMessageBytesMax));
}

// The orders of an attempt share the bytes of its spec, and an order of another attempt has its own
// spec.
TEST(PayloadBytes, EachOrderHasItsSpecAndItsRanks) {
  PayloadBytes bytes(Epoch(7));
  for (const std::string name : {"first", "first", "second"}) {
    auto spec = std::make_shared<JobSpec>();
    spec->name = name;
    spec->environment["LANG"] = "bad \xff text";
    for (int32_t rank = 0; rank < 2; ++rank) {
      const SendStartRanks order{
          JobId(3), Attempt(2), spec, {{Rank(rank), WorkerName("w"), 0, Incarnation(1)}},
          "host:1", 0,          -1};
      grpc::ByteBuffer buffer = bytes.of(order);
      v1::CoordinatorMessage message;
      ASSERT_TRUE(
          grpc::SerializationTraits<v1::CoordinatorMessage>::Deserialize(&buffer, &message).ok());
      EXPECT_EQ(message.epoch(), 7U);
      EXPECT_EQ(message.start_ranks().job_id(), 3U);
      EXPECT_EQ(message.start_ranks().attempt(), 2U);
      EXPECT_EQ(message.start_ranks().spec().name(), name);
      EXPECT_EQ(message.start_ranks().spec().environment().at("LANG"), "bad \\xff text");
      ASSERT_EQ(message.start_ranks().ranks_size(), 1);
      EXPECT_EQ(message.start_ranks().ranks(0).rank(), rank);
    }
  }
}

// A page of ranks with the longest names, of a job with the largest spec, fits into a message that
// clients receive. The next page continues where the first one ends.
TEST(JobToProto, EveryPageFitsIntoAMessage) {
  const Core core({}, {}, Instant{});
  Job job;
  job.id = JobId(1);
  job.state = JobState::kRunning;
  const InputLimits limits;
  job.spec.train_config_json = std::string(kTrainConfigBytesMax, ' ');
  for (int i = 0; bytes_of(job.spec) < limits.spec_bytes_max - limits.environment_value_bytes_max;
       ++i)
    job.spec.command.push_back(std::string(limits.environment_value_bytes_max, 'x'));
  const size_t ranks = 2 * kRanksPageMax;
  for (size_t i = 0; i < ranks; ++i) {
    job.placement.push_back({Rank(static_cast<int32_t>(i)),
                             WorkerName(std::string(kNameBytesMax, 'w')), 0, Incarnation(1)});
    job.held.push_back(job.placement.back().worker);
    RankState& state = job.ranks.emplace_back();
    state.pid = 1 << 30;
    state.step = state.checkpoint_step = kStepMax;
    state.loss = state.grad_norm = state.step_seconds = state.tokens_per_second = 1;
    state.last_progress = Instant{} + Duration(1);
  }
  size_t next = 0;
  size_t pages = 0;
  for (; next < ranks && pages < ranks; ++pages) {
    const v1::Job page = job_to_proto(core, job, Instant{}, next);
    ASSERT_GT(page.placement_size(), 0);
    EXPECT_EQ(page.placement(0).rank(), static_cast<int32_t>(next));
    EXPECT_EQ(page.ranks_size(), page.placement_size());
    EXPECT_LT(page.ByteSizeLong(), static_cast<size_t>(daemon::kMessageBytesMax));
    next += static_cast<size_t>(page.placement_size());
  }
  EXPECT_EQ(next, ranks);
  EXPECT_GT(pages, 2U) << "bytes bound the page, not the number of ranks";

  // Earlier versions accepted larger specs.
  job.spec.train_config_json.append(kTrainConfigBytesMax, ' ');
  EXPECT_LT(job_to_proto(core, job, Instant{}, 0).ByteSizeLong(),
            static_cast<size_t>(daemon::kMessageBytesMax));
}

TEST(LeavingFromProto, GraceIsClamped) {
  v1::Leaving leaving;
  const auto grace = [&](int64_t ms) {
    leaving.set_grace_ms(ms);
    return leaving_from_proto(leaving).grace;
  };
  EXPECT_EQ(grace(2'500), std::chrono::milliseconds(2'500));
  EXPECT_EQ(grace(-1), Duration::zero());
  EXPECT_EQ(grace(std::numeric_limits<int64_t>::max()), std::chrono::hours(24));
}

}  // namespace
}  // namespace muster::coordinator
