#include "coordinator/core/attempt/endings.h"

#include <gtest/gtest.h>

#include "common/text/error_family.h"
#include "coordinator/core/recovery/avoidance.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

using std::chrono::seconds;

const CoreTime kTime{instant_from_ns(1'000'000'000'000), 5};

RankExit exit_of(int32_t rank, ExitCode code) { return {Rank(rank), to_int(code), 0, 7, ""}; }

// A running job with one rank on each of `count` workers n0, n1, …
Job job_of(int32_t count) {
  Job job;
  job.id = JobId(1);
  job.attempt = Attempt(1);
  job.state = JobState::kRunning;
  job.spec.nodes = count;
  for (int32_t rank = 0; rank < count; ++rank) {
    job.placement.push_back({Rank(rank), WorkerName("n" + std::to_string(rank)), 0, Incarnation{}});
    job.ranks.emplace_back().life = RankState::Life::kUp;
  }
  return job;
}

void end(Job& job, const RankExit& exit) {
  job.exits.push_back(exit);
  job.ranks[static_cast<size_t>(exit.rank.value())].life = RankState::Life::kExited;
}

Fleet fleet_of(const Job& job, const CoreOptions& options) {
  Fleet fleet(options);
  for (const RankPlacement& rank : job.placement) {
    WorkerRegistered event;
    event.worker = rank.worker;
    event.slots = 1;
    fleet.add(event, kTime.now);
  }
  return fleet;
}

TEST(Outcome, IsSuccessWhenEveryRankHasSucceeded) {
  Job job = job_of(2);
  end(job, exit_of(0, ExitCode::kOk));
  end(job, exit_of(1, ExitCode::kOk));
  const Outcome outcome = outcome_of(job, 0);
  EXPECT_EQ(outcome.kind, Outcome::Kind::kFinished);
  EXPECT_EQ(outcome.state, JobState::kSucceeded);
  EXPECT_EQ(outcome.reason, "all 2 ranks exited with code 0");
}

TEST(Outcome, OutputThatMayBeMissingIsNamed) {
  Job job = job_of(2);
  end(job, exit_of(0, ExitCode::kOk));
  RankExit exit = exit_of(1, ExitCode::kOk);
  exit.output_incomplete = true;
  end(job, exit);
  EXPECT_EQ(outcome_of(job, 0).state, JobState::kSucceeded);
  EXPECT_EQ(outcome_of(job, 0).reason,
            "all 2 ranks exited with code 0; output of 1 rank may be missing, because the disk of "
            "its worker was full");
}

TEST(Outcome, AnAttemptThatSucceededBeforeItsStopOrderCounts) {
  Job job = job_of(1);
  job.state = JobState::kRestarting;
  end(job, exit_of(0, ExitCode::kOk));
  EXPECT_EQ(outcome_of(job, 0).state, JobState::kSucceeded);
  EXPECT_EQ(outcome_of(job, 0).reason, "its one rank exited with code 0");
}

TEST(Outcome, ARankWithoutAReportIsNoSuccess) {
  Job job = job_of(2);
  end(job, exit_of(0, ExitCode::kOk));
  job.ranks[1].life = RankState::Life::kExited;  // lost with its worker
  EXPECT_EQ(outcome_of(job, 0).kind, Outcome::Kind::kFault);
  job.state = JobState::kRestarting;
  EXPECT_EQ(outcome_of(job, 0).kind, Outcome::Kind::kEnded);
}

TEST(Outcome, ACancelledJobNamesProcessesThatCannotBeKilled) {
  Job job = job_of(2);
  job.cancel_requested = true;
  end(job, exit_of(0, ExitCode::kOk));
  end(job, exit_of(1, ExitCode::kOk));
  const Outcome outcome = outcome_of(job, 1);
  EXPECT_EQ(outcome.state, JobState::kCancelled);
  EXPECT_EQ(outcome.exit_code, to_int(ExitCode::kInterrupted));
  EXPECT_EQ(outcome.reason, "cancelled; all 2 ranks are gone, but for 1 that cannot be killed");
}

TEST(Ending, TheFirstExitThatExplainsTheOthersIsTheCulprit) {
  const CoreOptions options;
  Job job = job_of(3);
  end(job, exit_of(0, ExitCode::kPeerLost));
  EXPECT_EQ(ending_of_exits(job, {}, options, 5).fault.rank, Rank(-1))
      << "a victim is not the culprit";
  end(job, exit_of(2, ExitCode::kDiskFull));
  end(job, exit_of(1, ExitCode::kFailure));
  const Ending ending = ending_of_exits(job, {}, options, 5);
  EXPECT_EQ(ending.fault.rank, Rank(2));
  EXPECT_EQ(ending.fault.worker, WorkerName("n2"));
  EXPECT_EQ(ending.fault.kind, IncidentKind::kDiskFull);
  EXPECT_EQ(ending.grace, Duration::zero());
}

RankExit witness_of(int32_t rank, int64_t step) {
  RankExit exit = exit_of(rank, ExitCode::kFailure);
  exit.of_program = true;
  exit.last_step = step;
  exit.detail =
      "RuntimeError: [pair.cc:534] Connection closed by peer [127.0.0.1]:21033 (job/t.py:3 f)";
  return exit;
}

// The last page of a rank of a program that reports a group "data".
RankEvidence page_of(int32_t rank, int64_t step, uint64_t entered) {
  RankEvidence page;
  page.rank = rank;
  page.step = step;
  GroupEvidence& group = page.groups.emplace_back();
  group.name = "data";
  group.enqueued = group.started = entered;
  group.completed = entered - 1;
  group.kind = CollectiveKind::kAllReduce;
  return page;
}

// Gloo aborts the ranks that did the right thing: rank 1 has left a collective out.
TEST(Ending, CountersDecideAmongConsequences) {
  const CoreOptions options;
  for (const int32_t count : {2, 4}) {
    Job job = job_of(count);
    CrashEvidence crash;
    for (int32_t rank = 0; rank < count; ++rank) {
      end(job, witness_of(rank, rank == 1 ? 15 : 14));
      crash.ended[Rank(rank)] = rank == 1 ? page_of(1, 15, 15) : page_of(rank, 14, 16);
    }
    job.exits[0].lost_link =
        "the node's network device eth1 has been without a link for 9 s (down)";
    job.exits[0].link_is_down = true;
    const Fault fault = ending_of_exits(job, crash, options, 5).fault;
    EXPECT_EQ(fault.rank, Rank(1));
    EXPECT_EQ(fault.worker, WorkerName("n1"));
    EXPECT_EQ(fault.error, "");
    EXPECT_TRUE(
        fault.message.starts_with("rank 1 on n1 has entered 15 collectives of data by step 15, the "
                                  "last one all-reduce, where "))
        << fault.message;
    EXPECT_NE(fault.message.find("rank 0 on n0 exited with code 1 after 14 steps: RuntimeError"),
              std::string::npos)
        << fault.message;
  }
}

TEST(Ending, ExitsAndOrderDecideAmongConsequences) {
  const CoreOptions options;
  Job job = job_of(4);
  end(job, witness_of(2, 14));
  EXPECT_EQ(ending_of_exits(job, {}, options, 5).fault.rank, Rank(2)) << "the first one";
  job.ranks[0].step = job.ranks[1].step = job.ranks[2].step = 14;
  job.ranks[3].step = 9;
  EXPECT_EQ(ending_of_exits(job, {}, options, 5).fault.rank, Rank(3)) << "other steps";
  job.ranks[3].step = 14;
  end(job, witness_of(1, 14));
  end(job, witness_of(0, 14));
  const Fault alive = ending_of_exits(job, {}, options, 5).fault;
  EXPECT_EQ(alive.rank, Rank(3)) << "the last one alive";
  EXPECT_TRUE(
      alive.message.starts_with("rank 3 on n3 is the only rank that still runs; rank 2 on "))
      << alive.message;
  RankExit left = exit_of(3, ExitCode::kOk);
  left.of_program = true;
  end(job, left);
  EXPECT_EQ(ending_of_exits(job, {}, options, 5).fault.rank, Rank(2)) << "it may be a victim, too";
  std::ranges::rotate(job.exits, job.exits.end() - 1);
  EXPECT_EQ(ending_of_exits(job, {}, options, 5).fault.rank, Rank(3)) << "it left too early";
  // Ranks that report no steps are not behind.
  Job silent = job_of(3);
  end(silent, witness_of(1, -1));
  silent.ranks[0].step = 50;
  EXPECT_EQ(ending_of_exits(silent, {}, options, 5).fault.rank, Rank(1));
  // The rank that differs may still run.
  Job stuck = job_of(4);
  CrashEvidence crash;
  for (int32_t rank = 0; rank < 3; ++rank) {
    end(stuck, witness_of(rank, 14));
    RankEvidence& page = crash.ended[Rank(rank)] = page_of(rank, 14, rank == 0 ? 17 : 16);
    page.groups[0].members = 4;
  }
  EXPECT_EQ(ending_of_exits(stuck, crash, options, 5).fault.rank, Rank(3));
  // A rank with a fault of its own explains the others, also if it reports later.
  Job late = job_of(2);
  end(late, witness_of(0, 14));
  RankExit culprit = witness_of(1, 14);
  culprit.detail = "ValueError: batch 7 is empty (job/train.py:31 step)";
  end(late, culprit);
  const Fault fault = ending_of_exits(late, {}, options, 5).fault;
  EXPECT_EQ(fault.rank, Rank(1));
  EXPECT_EQ(fault.error, "ValueError at job/train.py:31 step");
}

TEST(Ending, TheOthersOfAPreemptedRankMaySaveToo) {
  const CoreOptions options;
  Job job = job_of(2);
  end(job, exit_of(1, ExitCode::kPreempted));
  EXPECT_EQ(ending_of_exits(job, {}, options, 5).grace, options.cancel_grace);
}

TEST(Ending, FollowsFromDeadlines) {
  const CoreOptions options;
  Job job = job_of(2);
  job.state = JobState::kStarting;
  job.ranks[1].life = RankState::Life::kAssigned;
  Fleet fleet = fleet_of(job, options);
  LiveAttempt attempt(options, job, kTime.now);
  EXPECT_FALSE(ending_of_deadlines(job, attempt, fleet, options, kTime));
  attempt.start_deadline = kTime.now + seconds(1);
  EXPECT_FALSE(ending_of_deadlines(job, attempt, fleet, options, kTime));
  attempt.start_deadline = kTime.now;
  const auto late = ending_of_deadlines(job, attempt, fleet, options, kTime);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->fault.kind, IncidentKind::kNotStarted);
  EXPECT_EQ(late->fault.message, "rank 1 on n1 was not up within 60 s");

  attempt.start_deadline.reset();
  end(job, exit_of(0, ExitCode::kPeerLost));
  attempt.victim_deadline = kTime.now;
  fleet.at(WorkerName("n1")).connected = false;
  EXPECT_FALSE(ending_of_deadlines(job, attempt, fleet, options, kTime))
      << "the worker of rank 1 may still report its end";
  fleet.at(WorkerName("n1")).connected = true;
  ASSERT_TRUE(ending_of_deadlines(job, attempt, fleet, options, kTime));
}

TEST(ExitMeaning, DistinguishesVictimsFromCulprits) {
  const CoreOptions options;
  Job job = job_of(2);
  Fleet fleet = fleet_of(job, options);
  const LiveAttempt attempt(options, job, kTime.now);
  const auto meaning = [&](const RankExit& exit) {
    return meaning_of(exit, WorkerName("n0"), job, attempt, fleet, kTime.now);
  };
  EXPECT_EQ(meaning(exit_of(0, ExitCode::kOk)), ExitMeaning::kNone);
  EXPECT_EQ(meaning(exit_of(0, ExitCode::kPeerLost)), ExitMeaning::kVictim);
  EXPECT_EQ(meaning(exit_of(0, ExitCode::kFailure)), ExitMeaning::kCulprit);

  RankExit program = exit_of(0, ExitCode::kFailure);
  program.of_program = true;
  EXPECT_EQ(meaning(program), ExitMeaning::kCulprit);
  EXPECT_EQ(meaning(witness_of(0, 14)), ExitMeaning::kVictim) << "it waits for the cause";
  fleet.at(WorkerName("n1")).disconnected_at = kTime.now;
  EXPECT_EQ(meaning(program), ExitMeaning::kVictim) << "a peer's worker is unreachable";

  job.state = JobState::kRestarting;
  EXPECT_EQ(meaning(exit_of(0, ExitCode::kFailure)), ExitMeaning::kNone);
}

TEST(Faults, ALinkThatIsDownExplainsLostPeersOfTheTrainer) {
  const CoreOptions options;
  Job job = job_of(3);
  end(job, exit_of(0, ExitCode::kPeerLost));
  RankExit cut = exit_of(2, ExitCode::kPeerLost);
  cut.lost_link = "the node's network device eth0 has been without a link for 2 s (down)";
  end(job, cut);
  EXPECT_EQ(ending_of_exits(job, {}, options, 5).fault.family, "") << "the link is up again";
  job.exits[0].lost_link = "the node's network device eth0 lost its link 9 s before";
  const std::string reason = ending_of_exits(job, {}, options, 5).fault.message;
  EXPECT_TRUE(reason.ends_with(job.exits[0].lost_link)) << reason;
  job.exits[1].link_is_down = true;
  const Fault fault = ending_of_exits(job, {}, options, 5).fault;
  EXPECT_EQ(fault.family, kNetworkLinkLost);
  EXPECT_EQ(fault.worker, WorkerName("n2"));
  EXPECT_TRUE(fault.message.ends_with(cut.lost_link)) << fault.message;
  EXPECT_TRUE(is_of_unfit_node(job, fault, 4));
  // A switch takes the links of many nodes: the job does not try all of them.
  for (int32_t node = 0; node < kUnfitNodesMax; ++node) {
    Fault before = fault;
    before.worker = WorkerName("m" + std::to_string(node));
    before.node_unfit = true;
    job.faults.push_back(before);
  }
  EXPECT_FALSE(is_of_unfit_node(job, fault, 40));
  job.exits[0].link_is_down = true;
  const Fault of_switch = ending_of_exits(job, {}, options, 5).fault;
  EXPECT_EQ(of_switch.worker, WorkerName());
  const std::vector<WorkerName> nodes{WorkerName("n0"), WorkerName("n2")};
  EXPECT_EQ(of_switch.nodes_without_link, nodes);
  end(job, exit_of(1, ExitCode::kOk));
  EXPECT_EQ(ending_of_exits(job, {}, options, 5).fault.rank, Rank(1)) << "it left too early";
  job.exits.pop_back();
  end(job, exit_of(1, ExitCode::kFailure));
  EXPECT_EQ(ending_of_exits(job, {}, options, 5).fault.rank, Rank(1)) << "it is no victim";
}

TEST(Faults, CarryTheProgressOfAllAttempts) {
  Job job = job_of(2);
  Fault earlier;
  earlier.checkpoint_step = 40;
  earlier.job_step = 47;
  job.faults.push_back(earlier);
  job.ranks[0].step = 45;
  job.ranks[1].checkpoint_step = 42;
  Fault fault = fault_of_lost_worker(WorkerName("n1"), "was restarted", 44, 5);
  EXPECT_EQ(fault.message, "worker n1 was restarted; its ranks are lost");
  EXPECT_EQ(fault.kind, IncidentKind::kWorkerLost);
  add_progress(job, 41, fault);
  EXPECT_EQ(fault.checkpoint_step, 42);
  EXPECT_EQ(fault.job_step, 47);
  EXPECT_EQ(fault_of_preemption(job, WorkerName("n0"), "is leaving", 5).last_step, 45);
  EXPECT_EQ(fault_of_missing_rank(Rank(1), WorkerName("n1"), 5).message,
            "rank 1 is gone from n1, which did not report how it ended");
}

}  // namespace
}  // namespace muster::coordinator
