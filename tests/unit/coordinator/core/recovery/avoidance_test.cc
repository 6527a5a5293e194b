#include "coordinator/core/recovery/avoidance.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "coordinator/core/recovery/rank_faults.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

// Returns a job that failed on n1 by a signal, after 12 steps and with a checkpoint of 10.
Job job_that_failed() {
  Job job;
  job.spec.restarts_max = 2;
  job.faults.push_back(fault_of({Rank(3), -1, 11, 12, ""}, WorkerName("n1"), 0));
  job.faults.back().checkpoint_step = 10;
  job.faults.back().job_step = 12;
  return job;
}

constexpr int32_t kManyNodes = 100;

// Returns a fault on `node` at the start of an attempt of the job, which has trained on n0 and n1.
Fault at_start_of(const Job& job, const char* node) {
  Fault fault = job.faults.front();
  fault.last_step = -1;
  fault.worker = WorkerName(node);
  return fault;
}
Job job_that_trained() {
  Job job = job_that_failed();
  job.trained_on = {WorkerName("n0"), WorkerName("n1")};
  return job;
}

TEST(Avoidance, WhereAJobThatHasTrainedCannotStartTheNodeIsUnfit) {
  Job job = job_that_trained();
  EXPECT_TRUE(is_of_unfit_node(job, at_start_of(job, "n1"), kManyNodes))
      << "the same fault on this node";
  EXPECT_FALSE(is_of_unfit_node(job, at_start_of(job, "n0"), kManyNodes))
      << "the first fault on this node";
  EXPECT_TRUE(is_of_unfit_node(job, at_start_of(job, "n2"), kManyNodes)) << "a new node";
  Fault fault = at_start_of(job, "n2");
  fault.last_step = 12;
  EXPECT_FALSE(is_of_unfit_node(job, fault, kManyNodes)) << "the job has trained on this node";
  fault.last_step = -1;
  fault.kind = IncidentKind::kHang;
  EXPECT_TRUE(is_of_unfit_node(job, fault, kManyNodes));
  for (const auto kind : {IncidentKind::kWorkerLost, IncidentKind::kDiskFull}) {
    fault.kind = kind;
    EXPECT_FALSE(is_of_unfit_node(job, fault, kManyNodes)) << "this cause has its own name";
  }
  fault.kind = IncidentKind::kRankDied;
  fault.signal = 0;
  fault.exit_code = to_int(ExitCode::kStorageAway);
  EXPECT_TRUE(is_of_unfit_node(job, fault, kManyNodes)) << "the folder is mounted elsewhere";
  fault.kind = IncidentKind::kOutOfMemory;
  fault.exit_code = 1;
  EXPECT_FALSE(is_of_unfit_node(job, fault, kManyNodes))
      << "on fewer nodes each rank needs more memory";
  job.placement = {{Rank(0), WorkerName("n0"), 0, {}}, {Rank(1), WorkerName("n2"), 0, {}}};
  EXPECT_TRUE(is_of_unfit_node(job, fault, kManyNodes));
  for (const int32_t code : {126, 127}) {
    Fault missing = at_start_of(job, "n0");
    missing.signal = 0;
    missing.exit_code = code;
    missing.of_program = true;
    EXPECT_TRUE(is_of_unfit_node(job, missing, kManyNodes)) << "the program was there, " << code;
    EXPECT_FALSE(is_of_unfit_node(job, missing, 0)) << "no node remains";
    missing.last_step = 12;
    EXPECT_FALSE(is_of_unfit_node(job, missing, kManyNodes)) << "the program itself returns it";
    missing.last_step = missing.job_step = missing.checkpoint_step = -1;
    EXPECT_FALSE(is_of_unfit_node(job, missing, kManyNodes)) << "it may exist on no node";
  }
  fault = at_start_of(job, "n2");
  fault.job_step = fault.checkpoint_step = -1;
  EXPECT_FALSE(is_of_unfit_node(job, fault, kManyNodes))
      << "the job may be unable to start on any node";
  job.trained_on.clear();
  EXPECT_FALSE(is_of_unfit_node(job, at_start_of(job, "n2"), kManyNodes))
      << "the fault has no node";
}

TEST(Avoidance, ANodeIsUnfitAgainOnlyIfNothingWasTrainedInBetween) {
  Job job = job_that_trained();
  job.faults.push_back(at_start_of(job, "n0"));
  EXPECT_TRUE(is_of_unfit_node(job, at_start_of(job, "n1"), kManyNodes))
      << "the fault on n0 was without a step";
  job.faults.back().last_step = 11;
  EXPECT_FALSE(is_of_unfit_node(job, at_start_of(job, "n1"), kManyNodes));
}

TEST(Avoidance, AJobThatCanStartNowhereIsNotItsNodesFault) {
  Job job = job_that_trained();
  for (const char* node : {"n2", "n3", "n4", "n5"}) {
    Fault fault = at_start_of(job, node);
    EXPECT_TRUE(is_of_unfit_node(job, fault, kManyNodes)) << node;
    fault.node_unfit = true;
    job.faults.push_back(fault);
  }
  EXPECT_FALSE(is_of_unfit_node(job, at_start_of(job, "n6"), kManyNodes));
  job.faults.resize(3);
  EXPECT_TRUE(is_of_unfit_node(job, at_start_of(job, "n6"), kManyNodes));
  EXPECT_FALSE(is_of_unfit_node(job, at_start_of(job, "n6"), 2)) << "no other node is left";
  EXPECT_EQ(blame_of_node(job.faults.back()), NodeBlame::kCounts)
      << "a signal counts against the node";
  job.faults.back().signal = 0;
  job.faults.back().exit_code = 1;
  EXPECT_EQ(blame_of_node(job.faults.back()), NodeBlame::kNothing)
      << "an exit by itself does not count";
}

// Failed hardware is the node's, however many nodes of a large job have failed before.
TEST(Avoidance, FailedHardwareIsAlwaysItsNodes) {
  Job job = job_that_trained();
  Fault fault = at_start_of(job, "n2");
  fault.node_unfit = true;
  for (const char* node : {"n2", "n3", "n4", "n5"}) {
    fault.worker = WorkerName(node);
    job.faults.push_back(fault);
  }
  fault.worker = WorkerName("n6");
  EXPECT_FALSE(is_of_unfit_node(job, fault, kManyNodes));
  fault.family = "file missing";
  EXPECT_FALSE(is_of_unfit_node(job, fault, kManyNodes)) << "all nodes may lack it";
  fault.family = "GPU memory error";
  EXPECT_TRUE(is_of_unfit_node(job, fault, kManyNodes));
  fault.family = "file missing";
  fault.job_step = 13;
  EXPECT_TRUE(is_of_unfit_node(job, fault, kManyNodes)) << "progress has broken the row";
}

TEST(Avoidance, AnUnfitNodeIsAvoidedEachTimeForLonger) {
  constexpr int64_t kHour = Duration(kAvoidedFor).count();
  Job job = job_that_trained();
  Fault unfit = at_start_of(job, "n2");
  unfit.node_unfit = true;
  job.faults.push_back(unfit);
  const std::set<WorkerName> avoided{unfit.worker};
  EXPECT_EQ(nodes_to_avoid(job, kHour - 1), avoided);
  EXPECT_EQ(nodes_to_avoid(job, kHour), std::set<WorkerName>());
  EXPECT_EQ(decide_restart(job).delay, Duration::zero()) << "the job moves to another node";
  EXPECT_NE(decide_restart(job).reason.find("away from n2 for 1 h if others are free"),
            std::string::npos)
      << decide_restart(job).reason;
  job.restarts_used[Cause::kUnfitNode] = {19, 10, 12};
  EXPECT_TRUE(decide_restart(job).restart);
  job.restarts_used.clear();
  unfit.unix_ns = kHour / 2;
  job.faults.push_back(unfit);
  EXPECT_EQ(decide_restart(job).delay, kMendedDelay) << "no other node was free";
  EXPECT_EQ(nodes_to_avoid(job, 3 * kHour / 2 - 1), avoided)
      << "the same time from the newest fault on";
  EXPECT_EQ(nodes_to_avoid(job, 3 * kHour / 2), std::set<WorkerName>());
  unfit.unix_ns = 2 * kHour;
  job.faults.push_back(unfit);
  EXPECT_EQ(nodes_to_avoid(job, 4 * kHour - 1), avoided) << "avoided again, for twice the time";
  EXPECT_EQ(nodes_to_avoid(job, 4 * kHour), std::set<WorkerName>());
  for (int again = 0; again < 10; ++again) {
    unfit.unix_ns += 2 * Duration(kAvoidedMax).count();
    job.faults.push_back(unfit);
  }
  EXPECT_EQ(nodes_to_avoid(job, unfit.unix_ns + Duration(kAvoidedMax).count() - 1), avoided);
  EXPECT_EQ(nodes_to_avoid(job, unfit.unix_ns + Duration(kAvoidedMax).count()),
            std::set<WorkerName>());
}

// Returns the fault of two nodes that cannot reach each other.
Fault fault_of_pair(const char* a, const char* b, Duration when) {
  Fault fault;
  fault.worker = WorkerName(a);
  fault.peer = WorkerName(b);
  fault.kind = IncidentKind::kHang;
  fault.message = "cut";
  fault.unix_ns = when.count();
  return fault;
}

TEST(Avoidance, OneNodeOfAPairWithoutALinkIsAvoidedAndNeitherIsToBlame) {
  using std::chrono::minutes;
  const auto avoided = [](const Job& job, Duration at) {
    std::string names;
    for (const WorkerName& name : nodes_to_avoid(job, at.count())) names += name.value();
    return names;
  };
  Job job = job_that_trained();
  job.faults.push_back(fault_of_pair("n0", "n1", minutes(0)));
  EXPECT_EQ(avoided(job, minutes(9)), "n1");
  EXPECT_EQ(avoided(job, kPairAvoidedFor), "") << "the link may be repaired";
  EXPECT_EQ(cause_of(job.faults.back()), Cause::kLinkCut);
  EXPECT_EQ(blame_of_node(job.faults.back()), NodeBlame::kNothing);
  RestartDecision decision = decide_restart(job);
  EXPECT_EQ(decision.delay, Duration::zero());
  EXPECT_EQ(decision.reason,
            "restart 1 of 20, not on both n0 and n1 for 10 min if others are free: cut");
  // A pair that must be used again starts later, and is avoided for longer after its time.
  job.faults.push_back(fault_of_pair("n1", "n0", minutes(1)));
  EXPECT_EQ(decide_restart(job).delay, kMendedDelay);
  EXPECT_EQ(avoided(job, minutes(10)), "n1");
  job.faults.push_back(fault_of_pair("n0", "n1", minutes(20)));
  EXPECT_EQ(avoided(job, minutes(39)), "n1");
  // A node of several pairs is avoided instead of its peers.
  job.faults.push_back(fault_of_pair("n2", "n0", minutes(20)));
  job.faults.push_back(fault_of_pair("n0", "n3", minutes(20)));
  EXPECT_EQ(avoided(job, minutes(21)), "n0");
  job.faults.push_back(fault_of_pair("n4", "n5", minutes(20)));
  EXPECT_EQ(avoided(job, minutes(21)), "n0n5");
}

TEST(Avoidance, AJobThatHasTrainedMeetsSoonerAndEachTimeWithoutAStepLater) {
  Job job;
  EXPECT_EQ(rendezvous_time_of(job), Duration::zero());
  job = job_that_trained();
  job.placement = {{Rank(0), WorkerName("n0"), 0, {}}, {Rank(1), WorkerName("n2"), 0, {}}};
  EXPECT_EQ(rendezvous_time_of(job), Duration::zero()) << "n2 may have to install its programs";
  job.placement.back().worker = WorkerName("n1");
  EXPECT_EQ(rendezvous_time_of(job), kRendezvousAgain);
  job.faults.push_back(job.faults.back());
  EXPECT_EQ(rendezvous_time_of(job), 2 * kRendezvousAgain);
  for (int i = 0; i < 9; ++i) job.faults.push_back(job.faults.back());
  EXPECT_EQ(rendezvous_time_of(job), kRendezvousMax);
  job.faults.push_back(job.faults.back());
  job.faults.back().job_step = 13;
  EXPECT_EQ(rendezvous_time_of(job), kRendezvousAgain);
  job.faults = {at_start_of(job, "n0")};
  job.faults.back().checkpoint_step = job.faults.back().job_step = -1;
  EXPECT_EQ(rendezvous_time_of(job), Duration::zero()) << "it may have to install its programs";
}

TEST(Avoidance, WhereAJobTrainsAgainTheNodeFits) {
  Job job = job_that_trained();
  job.faults.push_back(at_start_of(job, "n2"));
  job.faults.back().node_unfit = true;
  job.placement = {{Rank(0), WorkerName("n0"), 0, {}}, {Rank(1), WorkerName("n2"), 0, {}}};
  note_training(job);
  EXPECT_EQ(nodes_to_avoid(job, 1), std::set<WorkerName>());
  EXPECT_EQ(job.trained_on, (std::vector<WorkerName>{WorkerName("n0"), WorkerName("n2")}));
}

TEST(Avoidance, TwiceAtOneStepIsAvoidedForAnHourAndAFullDiskIsNoNodes) {
  Job job = job_that_trained();
  job.faults.push_back(job.faults.back());
  const std::set<WorkerName> avoided{WorkerName("n1")};
  EXPECT_EQ(nodes_to_avoid(job, Duration(kAvoidedFor).count() - 1), avoided);
  EXPECT_EQ(nodes_to_avoid(job, Duration(kAvoidedFor).count()), std::set<WorkerName>());
  for (Fault& fault : job.faults) fault.kind = IncidentKind::kDiskFull;
  EXPECT_EQ(nodes_to_avoid(job, 1), std::set<WorkerName>());
}

TEST(Avoidance, NodesWithoutALinkAreAvoidedUntilTheJobTrainsThere) {
  Job job = job_that_trained();
  job.faults.push_back(fault_of({Rank(0), 76, 0, 14, ""}, WorkerName(), 5));
  job.faults.back().nodes_without_link = {WorkerName("n1"), WorkerName("n2")};
  const std::set<WorkerName> both{WorkerName("n1"), WorkerName("n2")};
  EXPECT_EQ(nodes_to_avoid(job, 5 + Duration(kAvoidedFor).count() - 1), both);
  EXPECT_EQ(nodes_to_avoid(job, 5 + Duration(kAvoidedFor).count()), std::set<WorkerName>());
  EXPECT_EQ(avoidance_text(job), ", away from the 2 nodes for 1 h if others are free");
  job.placement = {{Rank(0), WorkerName("n1"), 0, {}}};
  note_training(job);
  EXPECT_EQ(nodes_to_avoid(job, 5), std::set<WorkerName>{WorkerName("n2")});
}

TEST(Avoidance, FactsAboutNodesAreForgottenLast) {
  Job job = job_that_trained();
  Fault unfit = at_start_of(job, "n2");
  unfit.node_unfit = true;
  add_fault(job, unfit);
  for (size_t i = 0; i < 3 * kFaultsKeptMax; ++i) add_fault(job, job.faults.back());
  EXPECT_EQ(job.faults.size(), kFaultsKeptMax);
  job = job_that_trained();
  add_fault(job, unfit);
  const Fault other = at_start_of(job, "n0");
  for (size_t i = 0; i < 3 * kFaultsKeptMax; ++i) add_fault(job, other);
  EXPECT_EQ(job.faults.size(), kFaultsKeptMax);
  EXPECT_EQ(job.faults.front(), unfit);
  for (size_t i = 0; i < kFaultsKeptMax; ++i) add_fault(job, unfit);
  add_fault(job, other);
  add_fault(job, unfit);
  EXPECT_EQ(job.faults[kFaultsKeptMax - 2], other) << "the newest faults are retained";
}

}  // namespace
}  // namespace muster::coordinator
