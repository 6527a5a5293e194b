// The fixture of the metrics tests.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <string>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "coordinator/shell/metrics/metrics.h"

namespace muster::coordinator {

using testing::HasSubstr;
using testing::Not;

// A core with one worker, which runs job 1 with two ranks, and the core's metrics.
class MetricsTest : public testing::Test {
 protected:
  MetricsTest() {
    step(WorkerRegistered{worker_, life_, "test", "h", 2, "h:1", {}, {}, {}, {}, {}, 1});
    JobSpec spec;
    spec.name = "llama";
    spec.ranks_per_node = 2;
    spec.restarts_max = 1;
    spec.output_directory = "/out";
    step(JobSubmitted{RequestToken(1), "", spec, 1});
  }

  static CoreOptions options() {
    CoreOptions result;
    result.version = "test";
    return result;
  }

  void step(const Event& event) {
    ActionList ignored;
    core_.step(event, now_, ignored);
    metrics_.observe(core_, event);
  }

  HeartbeatReceived heartbeat(int32_t rank, int steps, uint32_t attempt = 1) const {
    RankProgress progress;
    progress.job = JobId(1);
    progress.attempt = Attempt(attempt);
    progress.rank = Rank(rank);
    progress.step = steps;
    for (int i = 0; i < steps; ++i) progress.step_times.add(0.25);
    if (steps > 0) {
      progress.step_seconds = 0.25;
      progress.loss = 2.5;
      progress.tokens_per_second = 100;
    }
    return {worker_, life_, {progress}, 1};
  }

  std::string page() { return metrics_.render(core_, now_, 1); }

  // Kills both ranks, and lets the job restart at the wall-clock time `unix_ns`.
  void restart(int64_t unix_ns = 1) {
    for (uint64_t rank = 0; rank < 2; ++rank) {
      step(RankExited{worker_, life_, 1 + rank, JobId(1), Attempt(1),
                      Rank(static_cast<int32_t>(rank)), -1, SIGKILL, 10, "", unix_ns});
    }
    for (int i = 0; i < 10 && core_.jobs().at(JobId(1)).attempt == Attempt(1); ++i) {
      now_ = core_.next_deadline().value_or(now_);
      step(Tick{unix_ns});
      step(HeartbeatReceived{worker_, life_, {}, unix_ns});
    }
    ASSERT_EQ(core_.jobs().at(JobId(1)).attempt, Attempt(2));
  }

  void expect_steps(int count) {
    const std::string page = metrics_.render(core_, now_, 1);
    const std::string labels = "{job_id=\"1\",name=\"llama\"} ";
    EXPECT_THAT(page,
                HasSubstr(absl::StrCat("muster_job_step_seconds_count", labels, count, "\n")));
    EXPECT_THAT(page, HasSubstr(absl::StrCat("muster_job_step_seconds_sum", labels, 0.25 * count)));
  }

  const std::string of_job_ = "{job_id=\"1\",name=\"llama\"} ";
  const WorkerName worker_{"node1"};
  const Incarnation life_{7};
  Instant now_ = instant_from_ns(1'000'000'000'000);
  Core core_{options(), {}, now_};
  Metrics metrics_{Epoch(1)};
};

}  // namespace muster::coordinator
