#include "cli/jobs/node_gpus.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::WorkerInfo& add_worker(v1::ListWorkersResponse& workers, int gpus, int slots) {
  v1::WorkerInfo& worker = *workers.add_workers();
  worker.set_connected(true);
  worker.set_slots(slots);
  for (int i = 0; i < gpus; ++i) worker.add_gpus();
  return worker;
}

TEST(GpusOfEach, IsWhatSoManyNodesHave) {
  EXPECT_EQ(gpus_on_every_node({8, 4, 8}, 1), 8);
  EXPECT_EQ(gpus_on_every_node({8, 4, 8}, 2), 8);
  EXPECT_EQ(gpus_on_every_node({8, 4, 8}, 3), 4);
  // The nodes that are still missing are assumed to be like the smallest of these.
  EXPECT_EQ(gpus_on_every_node({8, 4, 0}, 5), 4);
  EXPECT_EQ(gpus_on_every_node({0, 0}, 1), 0);
  EXPECT_EQ(gpus_on_every_node({}, 1), 0);
}

TEST(GpusOfWorkers, AreThoseOfWorkersThatCanTakeRanks) {
  v1::ListWorkersResponse workers;
  add_worker(workers, 8, 8);
  add_worker(workers, 8, 8).set_leaving(true);
  add_worker(workers, 8, 8).set_connected(false);
  add_worker(workers, 8, 8).mutable_exclusion()->set_cause("worker lost");
  EXPECT_THAT(gpus_of_workers(workers, 1), ElementsAre(8));
}

TEST(GpusOfWorkers, OfExcludedOnesCountIfThereAreNoOthers) {
  v1::ListWorkersResponse workers;
  add_worker(workers, 0, 4);
  add_worker(workers, 4, 4).mutable_exclusion()->set_cause("worker lost");
  EXPECT_THAT(gpus_of_workers(workers, 1), ElementsAre(4));
  EXPECT_THAT(gpus_of_workers({}, 1), IsEmpty());
}

TEST(GpusOfWorkers, AreNoMoreThanTheSlotsUse) {
  v1::ListWorkersResponse workers;
  add_worker(workers, 8, 2);
  EXPECT_THAT(gpus_of_workers(workers, 1), ElementsAre(2));
  EXPECT_THAT(gpus_of_workers(workers, 2), ElementsAre(4));
  EXPECT_THAT(gpus_of_workers(workers, 0), ElementsAre(2));  // ranks share the GPUs
}

TEST(GpusSentence, NamesSourceAndRemedy) {
  EXPECT_EQ(gpus_sentence(8, 1, "the workers of h:7070"),
            "8 ranks per node: the workers of h:7070 report 8 GPUs per node; --ranks-per-node N "
            "sets another number");
  EXPECT_EQ(gpus_sentence(8, 4, "the workers of h:7070"),
            "2 ranks per node: the workers of h:7070 report 8 GPUs per node, 4 for each rank; "
            "--ranks-per-node N sets another number");
  EXPECT_EQ(gpus_sentence(0, 1, "the workers of h:7070"),
            "1 rank per node: the workers of h:7070 report no GPUs; --ranks-per-node N sets "
            "another number");
  EXPECT_EQ(unknown_gpus_sentence("sinfo is not installed"),
            "1 rank per node: the nodes' GPUs are unknown: sinfo is not installed; "
            "--gpus-per-node N or --ranks-per-node N sets another number");
}

}  // namespace
}  // namespace muster::cli
