#include "coordinator/core/incident/crash_evidence.h"

#include <gmock/gmock.h>

#include <map>

#include <gtest/gtest.h>

#include "coordinator/core/core.h"

namespace muster::coordinator {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

// Job 1 with four ranks on two workers, and its stored incidents.
class CrashTest : public testing::Test {
 protected:
  CrashTest() {
    for (const WorkerName& worker : workers_)
      step(WorkerRegistered{worker, Incarnation(1), "t", "h", 2, "h:1", {}, {}, {}, {}, {}, 1});
    JobSpec spec;
    spec.name = "j";
    spec.nodes = 2;
    spec.ranks_per_node = 2;
    spec.restarts_max = 1;
    spec.output_directory = "/out";
    step(JobSubmitted{RequestToken(1), "", spec, 1});
    for (int rank = 0; rank < 4; ++rank) {
      RankProgress figures;
      figures.job = JobId(1);
      figures.attempt = Attempt(1);
      figures.rank = Rank(rank);
      figures.pid = 100 + rank;
      figures.phase = Phase::kStep;
      figures.step = 41 + rank;
      figures.last_progress_age = std::chrono::milliseconds(300);
      step(HeartbeatReceived{worker_of(rank), Incarnation(1), {figures}, 1});
    }
  }

  static CoreOptions options() {
    CoreOptions options;
    options.version = "t";
    return options;
  }

  WorkerName worker_of(int rank) const { return workers_[static_cast<size_t>(rank / 2)]; }

  void step(const Event& event) {
    ActionList actions;
    core_.step(event, now_, actions);
    for (const Action& action : actions) {
      if (const auto* stored = std::get_if<PersistIncident>(&action)) {
        incidents_[stored->incident.id.value()] = stored->incident;
        ++times_stored_;
      }
    }
  }

  // Ends a rank whose last page is newer than its heartbeats.
  void exit(int rank, int signal, const std::string& collective) {
    RankExited event;
    event.worker = worker_of(rank);
    event.incarnation = Incarnation(1);
    event.report_id = 10 + static_cast<uint64_t>(rank);
    event.job = JobId(1);
    event.attempt = Attempt(1);
    event.rank = Rank(rank);
    event.exit_code = signal > 0 ? -1 : 1;
    event.signal = signal;
    event.last_step = 41 + rank;
    event.detail = "the last line";
    event.unix_ns = 1;
    auto left = std::make_shared<EndEvidence>();
    left->rank.rank = rank;
    left->rank.pid = 100 + rank;
    left->rank.phase = Phase::kStep;
    left->rank.step = 41 + rank;
    left->rank.groups.push_back({.name = "data", .enqueued = 7, .collective = collective});
    left->rank.last_lines = {"the line before", "the last line"};
    if (signal == 11) left->kernel_messages = {"[5.0] python[101]: segfault"};
    event.evidence = left;
    step(event);
  }

  const std::vector<WorkerName> workers_ = {WorkerName("n0"), WorkerName("n1")};
  Instant now_ = instant_from_ns(1'000'000'000'000);
  Core core_{options(), {}, now_};
  std::map<uint64_t, Incident> incidents_;
  int times_stored_ = 0;
};

TEST_F(CrashTest, TheIncidentHasWhatTheRankLeftAndWhatTheOthersDid) {
  exit(1, 11, "grad all-reduce");
  ASSERT_THAT(incidents_, SizeIs(1));
  const Incident& incident = incidents_.at(1);
  EXPECT_EQ(incident.kind, IncidentKind::kRankDied);
  EXPECT_THAT(incident.kernel_messages, ElementsAre("n0: [5.0] python[101]: segfault"));
  ASSERT_THAT(incident.ranks, SizeIs(4));
  const RankEvidence& dead = incident.ranks[0];
  EXPECT_EQ(dead.rank, 1) << "the blamed rank comes first";
  EXPECT_THAT(dead.last_lines, ElementsAre("the line before", "the last line"));
  ASSERT_THAT(dead.groups, SizeIs(1));
  EXPECT_EQ(dead.groups[0].collective, "grad all-reduce");
  const RankEvidence& alive = incident.ranks[1];
  EXPECT_EQ(alive.rank, 0) << "then the rank with the fewest steps";
  EXPECT_EQ(alive.phase, Phase::kStep);
  EXPECT_EQ(alive.step, 41);
  EXPECT_EQ(alive.progress_age, std::chrono::milliseconds(300));
  EXPECT_THAT(alive.groups, SizeIs(0)) << "only the page contains groups";
}

TEST_F(CrashTest, WhatTheOthersLeaveIsAddedOnceWhenAllAreGone) {
  exit(1, 11, "grad all-reduce");
  const int before = times_stored_;
  exit(0, 9, "layer 3 all-gather");
  exit(2, 9, "layer 3 all-gather");
  EXPECT_EQ(times_stored_, before) << "a record may be large";
  exit(3, 9, "layer 4 all-gather");
  EXPECT_EQ(times_stored_, before + 1);
  const Incident& incident = incidents_.at(1);
  ASSERT_THAT(incident.ranks, SizeIs(4));
  EXPECT_EQ(incident.ranks[3].rank, 3);
  ASSERT_THAT(incident.ranks[3].groups, SizeIs(1));
  EXPECT_EQ(incident.ranks[3].groups[0].collective, "layer 4 all-gather");
  EXPECT_THAT(incident.ranks[3].last_lines, SizeIs(2));
}

TEST(CrashEvidence, IsBounded) {
  CrashEvidence crash;
  EndEvidence left;
  for (int i = 0; i < 1'000; ++i) {
    left.kernel_messages = {"the same", std::to_string(i)};
    crash.add(Rank(i), WorkerName("n"), left);
  }
  EXPECT_THAT(crash.ended, SizeIs(kIncidentRanksMax));
  EXPECT_THAT(crash.kernel_messages, SizeIs(kKernelMessagesMax));
  Job job;
  job.placement.resize(1'000);
  for (int i = 0; i < 1'000; ++i) job.placement[static_cast<size_t>(i)].rank = Rank(i);
  job.ranks.resize(1'000);
  Fault fault;
  fault.rank = Rank(999);
  Incident incident;
  take_crash_evidence(incident, job, fault, crash, Instant{});
  ASSERT_THAT(incident.ranks, SizeIs(kIncidentRanksMax));
  EXPECT_EQ(incident.ranks[0].rank, 999);
}

TEST(CrashEvidence, AMissingPageDoesNotReplaceEarlierReports) {
  Job job;
  job.placement.resize(1);
  job.placement[0].rank = Rank(0);
  job.ranks.resize(1);
  job.ranks[0].pid = 5;
  job.ranks[0].step = 17;
  CrashEvidence crash;
  EndEvidence left;
  left.rank.page_problem = "no such file";
  left.rank.last_lines = {"killed"};
  crash.add(Rank(0), WorkerName("n"), left);
  Incident incident;
  take_crash_evidence(incident, job, Fault{}, crash, Instant{});
  ASSERT_THAT(incident.ranks, SizeIs(1));
  EXPECT_EQ(incident.ranks[0].step, 17);
  EXPECT_TRUE(incident.ranks[0].page_problem.empty());
  EXPECT_THAT(incident.ranks[0].last_lines, ElementsAre("killed"));
}

}  // namespace
}  // namespace muster::coordinator
