#include "coordinator/core/queue/job_queue.h"

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

TEST(JobQueue, PriorityThenSubmission) {
  JobQueue queue;
  queue.add(JobId(1), 0, Instant{});
  queue.add(JobId(2), 5, Instant{});
  queue.add(JobId(3), 5, Instant{});
  queue.add(JobId(4), -1, Instant{});
  std::vector<uint64_t> order;
  for (const auto& entry : queue.in_order()) order.push_back(entry.job.value());
  EXPECT_EQ(order, (std::vector<uint64_t>{2, 3, 1, 4}));
  queue.remove(JobId(3), 5);
  EXPECT_EQ(queue.size(), 3U);
}

TEST(JobQueue, ReturnsTheEndOfTheNextBackoff) {
  JobQueue queue;
  EXPECT_FALSE(queue.next_ready_after(Instant{}).has_value());
  queue.add(JobId(1), 0, instant_from_ns(50));
  queue.add(JobId(2), 0, instant_from_ns(20));
  EXPECT_EQ(queue.next_ready_after(instant_from_ns(10)), instant_from_ns(20));
  EXPECT_EQ(queue.next_ready_after(instant_from_ns(20)), instant_from_ns(50));
  EXPECT_FALSE(queue.next_ready_after(instant_from_ns(50)).has_value());
  queue.add(JobId(3), 0, instant_from_ns(55), instant_from_ns(70));
  EXPECT_EQ(queue.next_ready_after(instant_from_ns(50)), instant_from_ns(55));
  EXPECT_EQ(queue.next_ready_after(instant_from_ns(55)), instant_from_ns(70))
      << "the end of the wait for all nodes";
  queue.excuse(Duration(7));
  EXPECT_EQ(queue.next_ready_after(instant_from_ns(60)), instant_from_ns(77));
}

TEST(JobQueue, ABackOffContinuesWhenTheTimeOfDayIsKnown) {
  const CoreOptions options;
  const Instant now = instant_from_ns(1'000'000'000'000);
  JobTable jobs;
  Job stored;
  stored.id = JobId(1);
  stored.not_before_unix_ns = 50'000'000'000;
  const Job& job = jobs.restore(std::move(stored));
  JobQueue queue;
  queue.restore(job, options, now);
  EXPECT_EQ(queue.in_order().front().not_before, now);
  queue.resume_backoffs(jobs, options, {now, 0});
  EXPECT_EQ(queue.in_order().front().not_before, now) << "not known yet";
  queue.resume_backoffs(jobs, options, {now, 47'000'000'000});
  EXPECT_EQ(queue.in_order().front().not_before, now + std::chrono::seconds(3));
  queue.resume_backoffs(jobs, options, {now, 49'000'000'000});
  EXPECT_EQ(queue.in_order().front().not_before, now + std::chrono::seconds(3)) << "only once";
}

TEST(JobQueue, ABackOffIsBoundedWhateverTheClocksShow) {
  const CoreOptions options;
  const Instant now = instant_from_ns(1'000'000'000'000);
  JobTable jobs;
  Job stored;
  stored.id = JobId(1);
  stored.not_before_unix_ns = 1'000'000'000'000'000;
  JobQueue queue;
  queue.restore(jobs.restore(std::move(stored)), options, now);
  queue.resume_backoffs(jobs, options, {now, 5});
  EXPECT_LE(queue.in_order().front().not_before, now + std::chrono::minutes(5));
}

}  // namespace
}  // namespace muster::coordinator
