// Tests of what every storage guarantees. A program that links this file chooses the storage by
// storage_under_test.h.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "coordinator/shell/messages/incident_messages.h"
#include "tests/unit/coordinator/shell/full_incident.h"
#include "tests/unit/coordinator/shell/full_job.h"
#include "tests/unit/coordinator/shell/storage/storage_under_test.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

class StorageCases : public testing::Test {
 protected:
  void SetUp() override {
    if (opener_ == nullptr) GTEST_SKIP() << "the storage's server is not installed";
  }
  // Opens the storage as a coordinator does that starts after another one.
  std::unique_ptr<Storage> reopen() {
    auto storage = opener_->open();
    EXPECT_TRUE(storage.ok()) << storage.status();
    return storage.ok() ? *std::move(storage) : nullptr;
  }

  TempFolder folder_;
  std::unique_ptr<StorageUnderTest> opener_ = StorageUnderTest::make(folder_.file("muster.db"));
};

TEST_F(StorageCases, KeepsCommittedState) {
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    const auto storage = reopen();
    EXPECT_EQ(*storage->begin_epoch(), Epoch(epoch));
    const auto state = storage->load();
    ASSERT_TRUE(state.ok());
    if (epoch == 1) {
      Job other = full_job();
      other.id = JobId(8);
      ASSERT_TRUE(storage
                      ->commit({{{JobId(7), full_job()}, {JobId(8), other}},
                                {{"r7", JobId(7)}, {"r8", JobId(8)}},
                                {},
                                JobId(9)})
                      .ok());
      EXPECT_EQ(state->last_job_id, JobId(0));
    } else if (epoch == 2) {
      EXPECT_EQ(state->last_job_id, JobId(9));
      ASSERT_EQ(state->jobs.size(), 2U);
      EXPECT_EQ(state->jobs[0], full_job());
      EXPECT_EQ(state->request_ids.size(), 2U);
      ASSERT_TRUE(storage->commit({{}, {}, {JobId(8)}, JobId(0)}).ok());
    } else {
      EXPECT_EQ(state->jobs.size(), 1U);
      EXPECT_EQ(state->last_job_id, JobId(9));
      EXPECT_EQ(state->request_ids, (std::map<std::string, JobId>{{"r7", JobId(7)}}));
    }
  }
}

TEST_F(StorageCases, KeepsIncidents) {
  Incident open = full_incident(5, JobId(4));
  open.open = true;
  {
    const auto storage = reopen();
    StorageBatch batch;
    batch.incidents = {{IncidentId(2), full_incident(2)},
                       {IncidentId(3), full_incident(3)},
                       {IncidentId(5), open}};
    ASSERT_TRUE(storage->commit(batch).ok());
    batch = {};
    batch.forgotten_incidents = {IncidentId(2)};
    Incident again = full_incident(3);
    again.action = "restart 2 of 3";
    batch.incidents = {{IncidentId(3), again}};
    ASSERT_TRUE(storage->commit(batch).ok());
  }
  const auto storage = reopen();
  const auto state = storage->load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->incidents, (std::vector<IncidentId>{IncidentId(3), IncidentId(5)}));
  ASSERT_EQ(state->open_incidents.size(), 1U);
  EXPECT_EQ(state->open_incidents[0], open) << "complete, so that storing it again loses nothing";

  const auto listed = storage->incidents(JobId(0), 10);
  ASSERT_TRUE(listed.ok());
  ASSERT_EQ(listed->size(), 2U);
  EXPECT_EQ(listed->at(0).id(), 5U) << "newest first";
  EXPECT_EQ(listed->at(0).ranks_size(), 0);
  EXPECT_EQ(listed->at(1).action(), "restart 2 of 3");
  EXPECT_EQ(storage->incidents(JobId(0), 1)->size(), 1U);
  EXPECT_EQ(storage->incidents(JobId(4), 10)->size(), 1U);
  EXPECT_EQ(storage->incidents(JobId(9), 10)->size(), 0U);

  const auto shown = storage->incident(IncidentId(3));
  ASSERT_TRUE(shown.ok()) << shown.status();
  EXPECT_EQ(incident_from_proto(*shown)->stacks, full_incident(3).stacks);
  EXPECT_EQ(storage->incident(IncidentId(2)).status().code(), absl::StatusCode::kNotFound);
}

// The exits of an attempt are stored one by one, while the job's record stays as it is.
TEST_F(StorageCases, KeepsTheExitsOfTheCurrentAttempt) {
  Job job = full_job();
  const std::vector<RankExit> exits = {job.exits[0], job.exits[1]};
  const auto stored = [&] {
    const auto state = reopen()->load();
    return state.ok() ? state->jobs.at(0).exits : std::vector<RankExit>();
  };
  job.exits = {exits[0]};
  ASSERT_TRUE(reopen()->commit({{{job.id, job}}, {}, {}, JobId(0)}).ok());
  EXPECT_EQ(stored(), job.exits);
  StorageBatch batch;
  batch.exits = {{job.id, job.attempt, 1, exits[1]}};
  ASSERT_TRUE(reopen()->commit(batch).ok());
  EXPECT_EQ(stored(), exits);
  job.exits = exits;
  ASSERT_TRUE(reopen()->commit({{{job.id, job}}, {}, {}, JobId(0)}).ok());
  EXPECT_EQ(stored(), exits);
  job.attempt = Attempt(job.attempt.value() + 1);
  job.exits = {exits[1]};
  ASSERT_TRUE(reopen()->commit({{{job.id, job}}, {}, {}, JobId(0)}).ok());
  EXPECT_EQ(stored(), job.exits);
  job.exits.clear();
  ASSERT_TRUE(reopen()->commit({{{job.id, job}}, {}, {}, JobId(0)}).ok());
  EXPECT_TRUE(stored().empty());
}

TEST_F(StorageCases, LeavesNoCopyOfAnEndedJobsSecrets) {
  const auto storage = reopen();
  const auto is_on_disk = [&](const std::string& text) {
    bool found = false;
    for (const auto& file : std::filesystem::directory_iterator(folder_.path()))
      found = found || read_file(file.path()).find(text) != std::string::npos;
    return found;
  };
  Job job = full_job();
  job.spec.environment["HF_TOKEN"] = "hunter2" + std::string(10'000, '.') + "hunter3";
  ASSERT_TRUE(storage->commit({{{job.id, job}}, {}, {}, JobId(0)}).ok());
  EXPECT_TRUE(is_on_disk("hunter3"));
  job.state = JobState::kFailed;
  job.spec.environment["HF_TOKEN"].clear();
  ASSERT_TRUE(storage->commit({{{job.id, job}}, {}, {}, JobId(0)}).ok());
  EXPECT_FALSE(is_on_disk("hunter2"));
  EXPECT_FALSE(is_on_disk("hunter3"));
}

}  // namespace
}  // namespace muster::coordinator
