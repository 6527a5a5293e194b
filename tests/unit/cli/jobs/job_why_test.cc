#include "cli/jobs/job_why.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "common/job/gpu.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::WorkerInfo worker_of(const std::string& name, int32_t slots, int32_t used, int gpus = 0) {
  v1::WorkerInfo worker;
  worker.set_name(name);
  worker.set_connected(true);
  worker.set_slots(slots);
  worker.set_slots_used(used);
  for (int i = 0; i < gpus; ++i) {
    worker.add_gpus()->set_name("NVIDIA H100");
    worker.mutable_gpus(i)->set_memory_bytes(uint64_t{80} << 30);
  }
  return worker;
}

TEST(WhyNot, NamesTheFirstReason) {
  const JobNeeds needs = {.nodes = 2, .fewest_nodes = 2, .slots = 4, .gpus_per_rank = 1};
  EXPECT_EQ(why_not(worker_of("a", 8, 4, 8), needs), "");
  EXPECT_EQ(why_not(worker_of("a", 2, 0, 8), needs), "has only 2 slots");
  EXPECT_EQ(why_not(worker_of("a", 8, 6, 8), needs), "2 of 8 slots are free");
  EXPECT_EQ(why_not(worker_of("a", 8, 0, 1), needs), "has only 1 GPU");
  v1::WorkerInfo worker = worker_of("a", 8, 0, 8);
  worker.set_gpus_used(5);
  EXPECT_EQ(why_not(worker, needs), "3 of 8 GPUs are free");
  worker = worker_of("a", 8, 0);
  worker.set_no_gpus_because("the NVIDIA driver is not loaded");
  EXPECT_EQ(why_not(worker, needs), "no GPUs: the NVIDIA driver is not loaded");
  worker.set_check_due(true);
  EXPECT_EQ(why_not(worker, needs), "must pass a node check first");
  worker.set_leaving(true);
  EXPECT_EQ(why_not(worker, needs), "leaving");
  worker.set_connected(false);
  EXPECT_EQ(why_not(worker, needs), "away");
  worker.mutable_exclusion()->set_cause("worker lost");
  worker.mutable_exclusion()->set_reason("it was restarted");
  EXPECT_EQ(why_not(worker, needs), "left out: worker lost: it was restarted");
}

TEST(WhyNot, NamesTheDomainsThatLackNodes) {
  const JobNeeds needs = {.nodes = 4, .fewest_nodes = 4, .segment_nodes = 2, .slots = 4};
  v1::ListWorkersResponse workers;
  EXPECT_THAT(describe_why(needs, workers), Not(HasSubstr("domain")));
  for (const auto& [name, used, domain] :
       {std::tuple("a", 0, "rack1"), std::tuple("b", 8, "rack1"), std::tuple("c", 8, "rack2")}) {
    *workers.add_workers() = worker_of(name, 8, used);
    workers.mutable_workers()->rbegin()->set_domain(domain);
  }
  EXPECT_THAT(
      describe_why(needs, workers),
      HasSubstr("workers that can take its ranks now, by domain: rack1 1 of 2, rack2 0 of 1\n"
                "each 2 consecutive nodes share a domain if possible: no domain has them\n"));
  const nlohmann::json out = why_to_json(needs, workers);
  EXPECT_EQ(out["segment_nodes"], 2);
  EXPECT_EQ(out["domains"][0], nlohmann::json({{"name", "rack1"}, {"nodes", 2}, {"able", 1}}));
}

TEST(WhyNot, CountsTheShareOfTheSlots) {
  const JobNeeds needs = {.nodes = 1, .fewest_nodes = 1, .slots = 4, .gpus_per_rank = kGpusOfSlot};
  v1::WorkerInfo worker = worker_of("a", 8, 4, 8);
  EXPECT_EQ(why_not(worker, needs), "");
  worker.set_gpus_used(8);
  EXPECT_EQ(why_not(worker, needs), "0 of 8 GPUs are free");
  EXPECT_EQ(why_not(worker_of("a", 8, 4), needs), "");
}

TEST(WhyNot, ComparesThePlanWithTheGpusMemory) {
  JobNeeds needs = {.nodes = 1, .fewest_nodes = 1, .slots = 1, .gpu_bytes = uint64_t{90} << 30};
  EXPECT_EQ(why_not(worker_of("a", 8, 0, 8), needs), "its GPUs have only 81,920 MiB");
  needs.gpu_bytes = uint64_t{70} << 30;
  EXPECT_EQ(why_not(worker_of("a", 8, 0, 8), needs), "");
}

TEST(DescribeWhy, ListsWorkersThatCannotTakeRanksFirst) {
  v1::JobSpec spec;
  spec.set_nodes(2);
  spec.set_min_nodes(1);
  spec.set_ranks_per_node(4);
  spec.set_gpus_per_rank(2);
  const JobNeeds needs = needs_of(spec, /*has_started=*/true, uint64_t{42} << 30);
  EXPECT_EQ(needs_of(spec, /*has_started=*/false, 0).fewest_nodes, 2);
  v1::ListWorkersResponse workers;
  EXPECT_THAT(describe_why(needs, workers), HasSubstr("no worker has registered"));
  *workers.add_workers() = worker_of("good", 4, 0, 8);
  *workers.add_workers() = worker_of("busy", 4, 1, 8);
  const std::string text = describe_why(needs, workers);
  EXPECT_THAT(text, HasSubstr("needs 2 nodes (or at least 1) with 4 free slots and 8 free GPUs "
                              "each, and 43,008 MiB of each GPU's memory by the plan\n"
                              "workers that can take its ranks now: 1 of 2\n"));
  EXPECT_LT(text.find("busy"), text.find("good"));
  EXPECT_EQ(why_to_json(needs, workers)["workers"][1]["why_not"], "3 of 4 slots are free");
}

TEST(DescribeWhy, ShowsAPageOfALargeFleet) {
  v1::ListWorkersResponse workers;
  for (int i = 0; i < 60; ++i) *workers.add_workers() = worker_of("w", 1, 1);
  const JobNeeds needs = {.nodes = 1, .fewest_nodes = 1, .slots = 1};
  EXPECT_THAT(describe_why(needs, workers), HasSubstr("… and 10 more (--json lists all workers)"));
  EXPECT_THAT(describe_why(needs, workers), Not(HasSubstr("each")));
}

}  // namespace
}  // namespace muster::cli
