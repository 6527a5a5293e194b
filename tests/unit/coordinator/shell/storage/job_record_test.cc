#include "coordinator/shell/storage/job_record.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "coordinator/core/queue/input_limits.h"
#include "tests/unit/coordinator/shell/full_job.h"

namespace muster::coordinator {
namespace {

using testing::HasSubstr;

TEST(JobRecord, KeepsEverything) {
  auto again = job_from_record(job_to_record(full_job()));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->exits.empty()) << "they have records of their own";
  for (const RankExit& exit : full_job().exits) {
    const auto stored = exit_from_record(exit_to_record(exit));
    ASSERT_TRUE(stored.ok()) << stored.status();
    again->exits.push_back(*stored);
  }
  EXPECT_EQ(*again, full_job());
}

TEST(JobRecord, ContainsEachNodeOnce) {
  Job job = full_job();
  job.exits.clear();
  job.spec.nodes = 3;
  job.spec.ranks_per_node = 4;
  job.placement.clear();
  for (int32_t rank = 0; rank < 12; ++rank)
    job.placement.push_back({Rank(rank), WorkerName("node-" + std::to_string(rank / 4)), rank % 4,
                             Incarnation(static_cast<uint64_t>(rank / 4))});
  const auto record = nlohmann::json::parse(job_to_record(job));
  EXPECT_EQ(record["nodes"].size(), 3U);
  EXPECT_FALSE(record.contains("placement"));
  const auto again = job_from_record(record.dump());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->placement, job.placement);
}

TEST(JobRecord, StoresEachFieldUnderItsName) {
  const Job job = full_job();
  const auto spec = nlohmann::json::parse(job_to_record(job))["spec"];
  const JobSpec plain;
  for_each_job_field([&](const JobField& field, auto member) {
    const std::string key(field.name);
    ASSERT_TRUE(spec.contains(key)) << key;
    EXPECT_EQ(spec[key], nlohmann::json(job.spec.*member)) << key;
    // nodes has its only consistent value, which is the default.
    if (key != "nodes") {
      EXPECT_NE(job.spec.*member, plain.*member) << key << " is not tested";
    }
  });
}

TEST(JobRecord, AFieldThatAnOlderVersionDidNotStoreHasItsDefault) {
  auto record = nlohmann::json::parse(job_to_record(full_job()));
  record["state"] = "FAILED";
  record["spec"] = {{"hang_after_seconds", 600}};
  record["placement"] = nlohmann::json::array();
  const auto job = job_from_record(record.dump());
  ASSERT_TRUE(job.ok()) << job.status();
  JobSpec expected;
  expected.hang_after_seconds = 600;
  EXPECT_EQ(job->spec, expected);
}

TEST(JobRecord, SurvivesTextThatIsNotUtf8) {
  Job job = full_job();
  job.exits[0].detail = "\xff\xfe";
  EXPECT_TRUE(exit_from_record(exit_to_record(job.exits[0])).ok());
}

TEST(JobRecord, RefusesInconsistentRecords) {
  for (const char* record : {"", "[]", "{}", "{\"id\": \"x\"}", "{\"id\":1,\"state\":\"DANCING\"}",
                             "{\"id\":1,\"state\":\"RUNNING\"}",
                             "{\"id\":1,\"state\":\"QUEUED\",\"exits\":[{\"rank\":4}]}",
                             "{\"id\":1,\"state\":\"FAILED\",\"placement\":[{\"rank\":4}]}"}) {
    EXPECT_FALSE(job_from_record(record).ok()) << record;
  }
}

// Earlier versions accepted specs that a submit of today may not have.
TEST(JobRecord, AcceptsASpecAboveTodaysLimit) {
  Job job = full_job();
  job.spec.environment["LONG"].assign(InputLimits().spec_bytes_max + 1, 'x');
  const auto read = job_from_record(job_to_record(job));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->spec, job.spec);
}

}  // namespace
}  // namespace muster::coordinator
