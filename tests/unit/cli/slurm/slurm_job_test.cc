#include "cli/slurm/slurm_job.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using testing::HasSubstr;

Variables job_variables() {
  return {{"SLURM_JOB_ID", "12"},
          {"SLURM_JOB_NAME", "it's a \"job\""},
          {"SLURM_JOB_NUM_NODES", "4"},
          {"SLURM_JOB_NODELIST", "node[1-4]"},
          {"SLURMD_NODENAME", "node1"}};
}

TEST(SlurmJob, IsReadFromTheEnvironment) {
  Variables variables = job_variables();
  variables["SLURM_JOB_RESERVATION"] = "maint,tests";
  auto job = slurm_job(variables);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->reservation, "maint,tests");
  EXPECT_EQ(job->id, "12");
  EXPECT_EQ(job->array, "");
  EXPECT_EQ(job->node, "node1");
  EXPECT_EQ(job->nodes, "node[1-4]");
  EXPECT_EQ(job->node_count, 4);
  EXPECT_EQ(job->restarts, 0);
  EXPECT_EQ(job->ranks_per_node, std::nullopt);
  EXPECT_EQ(run_name_of(*job), "it-s-a--job--12");

  variables["SLURM_GPUS_ON_NODE"] = "8";
  EXPECT_EQ(slurm_job(variables)->ranks_per_node, 8);
  variables["SLURM_NTASKS_PER_NODE"] = "4";
  variables["SLURM_RESTART_COUNT"] = "2";
  EXPECT_EQ(slurm_job(variables)->ranks_per_node, 4);
  EXPECT_EQ(slurm_job(variables)->restarts, 2);
}

TEST(SlurmJob, OfAnArrayNamesItsOwnTask) {
  Variables variables = job_variables();
  variables["SLURM_ARRAY_JOB_ID"] = "12";  // the last task has the array's own number
  variables["SLURM_ARRAY_TASK_ID"] = "3";
  const auto job = slurm_job(variables);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->id, "12_3");
  EXPECT_EQ(job->array, "12");
  EXPECT_EQ(run_name_of(*job), "it-s-a--job--12_3");
}

TEST(SlurmJob, OfAChainHasOneLabelForAllTasks) {
  SlurmJob job{.id = "12_3", .array = "12"};
  EXPECT_EQ(scrape_cluster(job, /*is_chain=*/true), "slurm-12");
  EXPECT_EQ(scrape_cluster(job, /*is_chain=*/false), "slurm-12_3");
  job.cluster = "east";
  EXPECT_EQ(scrape_cluster(job, /*is_chain=*/true), "east-12");
}

TEST(SlurmJob, OfAChainRunsOneTaskAtATime) {
  const SlurmJob task{.id = "12_3", .array = "12", .array_tasks = 10};
  const auto allocations =
      parse_slurm_job("JobId=15 ArrayJobId=12 ArrayTaskId=3 ArrayTaskThrottle=1 JobState=RUNNING");
  EXPECT_TRUE(check_chain(task, allocations).ok());
  for (const char* text : {"JobId=15 JobState=RUNNING", "ArrayTaskThrottle=2 JobState=RUNNING"})
    EXPECT_THAT(std::string(check_chain(task, parse_slurm_job(text)).message()),
                HasSubstr("use sbatch --array=1-10%1"));
  EXPECT_TRUE(check_chain(task, {}).ok());  // Slurm does not answer
  EXPECT_TRUE(check_chain({.id = "12_1", .array = "12"}, parse_slurm_job("JobState=RUNNING")).ok());
}

TEST(SlurmJob, IsNoneOutsideOfAnAllocation) {
  for (const char* name : {"SLURM_JOB_ID", "SLURM_JOB_NUM_NODES"}) {
    Variables variables = job_variables();
    variables.erase(name);
    EXPECT_THAT(std::string(slurm_job(variables).status().message()),
                HasSubstr("not in a Slurm job"));
  }
}

TEST(SlurmJob, SwitchesAreTheAddressWithoutTheNode) {
  EXPECT_EQ(switches_of({{"SLURM_TOPOLOGY_ADDR", "top.leaf2.node7"},
                         {"SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node"}}),
            "top.leaf2");
  EXPECT_EQ(domain_of({{"SLURM_TOPOLOGY_ADDR", "top.leaf2.node7"},
                       {"SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node"}}),
            "");
  EXPECT_EQ(domain_of({{"SLURM_TOPOLOGY_ADDR", "b03.node7.cluster"},
                       {"SLURM_TOPOLOGY_ADDR_PATTERN", "block.node"}}),
            "b03");
  EXPECT_EQ(switches_of({{"SLURM_TOPOLOGY_ADDR", "node7.cluster"},
                         {"SLURM_TOPOLOGY_ADDR_PATTERN", "node"}}),
            "");
  EXPECT_EQ(switches_of({}), "");
}

TEST(SlurmNode, TroubleNamesTheStateThatExcludesRanks) {
  const auto nodes = parse_slurm_nodes(
      "NodeName=node1 Arch=x86_64 NodeAddr=10.0.0.1 NodeHostName=a State=ALLOCATED "
      "ThreadsPerCore=1 OS=Linux 6 #1\n"
      "NodeName=node2 NodeAddr=10.0.0.2 State=MIXED+DRAIN ThreadsPerCore=1 Reason=a fan is loud "
      "[root@2026-01-01T00:00:00]\n"
      "NodeName=node3 NodeAddr=10.0.0.3 State=DOWN*+CLOUD ThreadsPerCore=1\n"
      "\nno node at all\n");
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes[0].name, "node1");
  EXPECT_EQ(nodes[0].address, "10.0.0.1");
  EXPECT_EQ(nodes[0].trouble(), "");
  EXPECT_EQ(nodes[1].trouble(), "Slurm: MIXED+DRAIN, a fan is loud [root@2026-01-01T00:00:00]");
  EXPECT_EQ(nodes[2].trouble(), "Slurm: DOWN*+CLOUD");
  for (const char* state : {"IDLE", "MIXED+PLANNED", "ALLOCATED+MAINT", "COMPLETING", "UNKNOWN*"})
    EXPECT_EQ((SlurmNode{"n", "a", state, ""}.trouble()), "") << state;
}

TEST(SlurmJobState, HasTheTimeThatItRanAndItsLimit) {
  EXPECT_EQ(parse_slurm_job("JobId=1 Requeue=1 Restarts=3 BatchFlag=1").restarts, 3);
  EXPECT_EQ(parse_slurm_job("JobId=1").restarts, -1);
  const auto state = parse_slurm_job(
      "JobId=1 JobName=a JobState=RUNNING Reason=None RunTime=00:01:07 TimeLimit=1-02:03:04 "
      "TimeMin=N/A");
  EXPECT_EQ(state.state, "RUNNING");
  EXPECT_EQ(state.id, "1");
  EXPECT_EQ(state.run_seconds, 67);
  EXPECT_EQ(state.limit_seconds, 93'784);
  for (const char* limit : {"UNLIMITED", "Partition_Limit", "", "1:2", "a-00:00:01"})
    EXPECT_EQ(parse_slurm_job(std::string("TimeLimit=") + limit).limit_seconds, std::nullopt)
        << limit;
}

TEST(SlurmJobState, DetectsAJobThatIsBeingEnded) {
  EXPECT_TRUE(is_being_ended({"COMPLETING", 1, 2}));
  EXPECT_TRUE(is_being_ended({"TIMEOUT", 1, 2}));
  EXPECT_FALSE(is_being_ended({"RUNNING", 1, 2}));
  EXPECT_FALSE(is_being_ended({}));
}

TEST(LeaveDecision, RequeuesJobsThatWereNotCancelled) {
  EXPECT_TRUE(decide_leave({}, {"RUNNING", 500, 1'000}).requeue);
  EXPECT_TRUE(decide_leave({}, {"COMPLETING", 1'001, 1'000}).requeue);
  EXPECT_TRUE(decide_leave({}, {"TIMEOUT", 996, 1'000}).requeue);
  EXPECT_TRUE(decide_leave({}, parse_slurm_job("JobId=1 JobState=COMPLETING Reason=TimeLimit "
                                               "RunTime=00:00:28 TimeLimit=00:01:00"))
                  .requeue);
  EXPECT_FALSE(decide_leave({}, {"COMPLETING", 900, 1'000}).requeue);
  EXPECT_FALSE(decide_leave({}, {"COMPLETING", 900, std::nullopt}).requeue);
  EXPECT_TRUE(decide_leave({}, {"", std::nullopt, std::nullopt}).requeue);
}

TEST(LeaveDecision, RequeuesPreemptedJobs) {
  EXPECT_TRUE(decide_leave({}, {"PREEMPTED", 900, 1'000}).requeue);
  const char* const line =
      "JobId=1 JobState=COMPLETING Reason=None RunTime=00:00:28 TimeLimit=01:00:00 PreemptTime=";
  EXPECT_TRUE(decide_leave({}, parse_slurm_job(std::string(line) + "2026-01-01T00:00:00")).requeue);
  for (const char* none : {"None", "Unknown", "N/A", ""})
    EXPECT_FALSE(decide_leave({}, parse_slurm_job(std::string(line) + none)).requeue) << none;
}

TEST(LeaveDecision, LeavesARequeuedJobAlone) {
  SlurmJob job;
  job.restarts = 1;
  const auto state =
      parse_slurm_job("JobId=1 JobState=COMPLETING RunTime=00:00:28 TimeLimit=01:00:00 Restarts=2");
  EXPECT_FALSE(decide_leave(job, state).requeue);
  EXPECT_TRUE(decide_leave(job, state).is_queued);
  job.restarts = 2;  // restarts in this allocation
  EXPECT_FALSE(decide_leave(job, state).is_queued);
}

TEST(LeaveDecision, IsNoneForWorkersThatEndedByThemselves) {
  EXPECT_FALSE(decide_workers_leave({}, {"RUNNING", 500, 86'400}));
  EXPECT_FALSE(decide_workers_leave({}, {"RUNNING", 500, std::nullopt}));
  EXPECT_FALSE(decide_workers_leave({}, {"RUNNING", 10, 300}));
  const auto near = decide_workers_leave({}, {"RUNNING", 86'100, 86'400});
  ASSERT_TRUE(near);
  EXPECT_TRUE(near->requeue);
  SlurmJobState preempted{"RUNNING", 500, 86'400};
  preempted.is_preempted = true;
  EXPECT_TRUE(decide_workers_leave({}, preempted)->requeue);
  EXPECT_FALSE(decide_workers_leave({}, {"COMPLETING", 500, 86'400})->requeue);  // scancel
  EXPECT_TRUE(decide_workers_leave({}, {})->requeue);                            // unknown
}

}  // namespace
}  // namespace muster::cli
