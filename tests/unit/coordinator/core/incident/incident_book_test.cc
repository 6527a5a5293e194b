#include "coordinator/core/incident/incident_book.h"

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

std::vector<Incident> stored(IncidentBook& book) { return book.take_changes().stored; }

Incident of_job(uint64_t job) {
  Incident incident;
  incident.job = JobId(job);
  return incident;
}

TEST(IncidentBook, NumbersAreGivenOnceAlsoByLaterLives) {
  IncidentBook book;
  EXPECT_EQ(book.open(of_job(1)), IncidentId(1));
  EXPECT_EQ(book.open(of_job(1)), IncidentId(2));
  const auto first = stored(book);
  ASSERT_EQ(first.size(), 2U);
  EXPECT_TRUE(stored(book).empty()) << "nothing has changed";
  IncidentBook again({IncidentId(1), IncidentId(2)}, {first[0]});
  EXPECT_EQ(again.open(of_job(2)), IncidentId(3));
  EXPECT_EQ(again.open_of(JobId(1)), std::vector<IncidentId>{IncidentId(1)});
}

TEST(IncidentBook, WhatIsClosedIsStoredOnceMoreAndForgotten) {
  IncidentBook book;
  const IncidentId id = book.open(of_job(1));
  (void)stored(book);
  book.note(id, 5, "over");
  book.close(id);
  const auto last = stored(book);
  ASSERT_EQ(last.size(), 1U);
  EXPECT_FALSE(last[0].open);
  EXPECT_EQ(last[0].moments.back().text, "over");
  EXPECT_EQ(book.find(id), nullptr);
  book.note(id, 6, "too late");
  EXPECT_TRUE(stored(book).empty());
}

TEST(IncidentBook, AClosedOneWaitsForItsSymbols) {
  IncidentBook book;
  const IncidentId id = book.open(of_job(1));
  book.await(id);
  EXPECT_EQ(book.open_count(), 1U);
  book.close(id);
  EXPECT_EQ(book.open_count(), 0U);
  (void)stored(book);
  ASSERT_NE(book.change(id), nullptr);
  book.change(id)->sentence = "with names";
  book.settle(id);
  const auto last = stored(book);
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].sentence, "with names");
  EXPECT_EQ(book.find(id), nullptr);
}

TEST(IncidentBook, WhatIsAwaitedTwiceIsOpenedAgain) {
  IncidentBook book;
  const IncidentId id = book.open(of_job(1));
  book.await(id);
  book.await(id);
  book.close(id);
  (void)stored(book);
  book.settle(id);
  ASSERT_NE(book.change(id), nullptr);
  book.change(id)->open = true;
  EXPECT_EQ(book.open_of(JobId(1)), std::vector<IncidentId>{id});
  book.settle(id);
  (void)stored(book);
  EXPECT_NE(book.find(id), nullptr) << "the incident is open";
  book.close(id);
  (void)stored(book);
  EXPECT_EQ(book.find(id), nullptr);
}

TEST(IncidentBook, RetainsTheNewestAndTheDecisiveMoments) {
  IncidentBook book;
  for (size_t i = 0; i < kIncidentsKeptMax + 5; ++i) book.close(book.open(of_job(1)));
  const std::vector<IncidentId> forgotten = book.take_changes().forgotten;
  ASSERT_EQ(forgotten.size(), 5U);
  for (size_t i = 0; i < forgotten.size(); ++i) EXPECT_EQ(forgotten[i], IncidentId(i + 1));
  const IncidentId id = book.open(of_job(1));
  for (int i = 0; i < 200; ++i) book.note(id, i, "moment");
  EXPECT_EQ(book.find(id)->moments.size(), kIncidentMomentsMax);
  EXPECT_EQ(book.find(id)->moments.back().unix_ns, 199);
}

TEST(KindOfExit, FollowsWhatIsKnown) {
  RankExit exit;
  exit.signal = 9;
  exit.exit_code = -1;
  EXPECT_EQ(kind_of_exit(exit), IncidentKind::kRankDied);
  exit.cause = ExitCause::kOutOfMemory;
  EXPECT_EQ(kind_of_exit(exit), IncidentKind::kOutOfMemory);
  exit = RankExit{};
  exit.exit_code = 3;
  EXPECT_EQ(kind_of_exit(exit), IncidentKind::kNotFinite);
  exit.exit_code = 4;
  EXPECT_EQ(kind_of_exit(exit), IncidentKind::kDiskFull);
  exit.exit_code = 1;
  EXPECT_EQ(kind_of_exit(exit), IncidentKind::kRankDied);
  exit.detail = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB";
  EXPECT_EQ(kind_of_exit(exit), IncidentKind::kOutOfMemory);
  exit.detail = "OSError: [Errno 28] No space left on device";
  EXPECT_EQ(kind_of_exit(exit), IncidentKind::kDiskFull);
  exit.cause = ExitCause::kNodeFault;
  EXPECT_EQ(kind_of_exit(exit), IncidentKind::kNotStarted) << "of the worker's own folder";
  exit.cause = ExitCause::kWorkerStalled;
  EXPECT_EQ(kind_of_exit(exit), IncidentKind::kWorkerLost) << "its guard ended the rank";
}

TEST(ActionText, IsTheDecisionWithoutItsCause) {
  Job job;
  job.spec.restarts_max = 2;
  Fault fault;
  fault.exit_code = 1;
  fault.message = "rank 0 on a exited with code 1";
  job.faults.push_back(fault);
  EXPECT_EQ(action_text(decide_restart(job), fault), "restart 1 of 2");
  job.restarts_used[Cause::kRankDied].count = 2;
  EXPECT_EQ(action_text(decide_restart(job), fault),
            "the job fails: all 2 restarts are used up and made no progress");
}

}  // namespace
}  // namespace muster::coordinator
