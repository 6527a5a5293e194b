#include "coordinator/shell/job_record.h"

#include <gmock/gmock.h>

#include "tests/unit/coordinator/shell/full_job.h"

namespace muster::coordinator {
namespace {

using testing::HasSubstr;

TEST(JobRecord, KeepsEverything) {
  const auto again = job_from_record(job_to_record(full_job()));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, full_job());
}

TEST(JobRecord, SurvivesTextThatIsNotUtf8) {
  Job job = full_job();
  job.exits[0].detail = "\xff\xfe";
  EXPECT_TRUE(job_from_record(job_to_record(job)).ok());
}

TEST(JobRecord, RefusesInconsistentRecords) {
  for (const char* record : {"", "[]", "{}", "{\"id\": \"x\"}", "{\"id\":1,\"state\":\"DANCING\"}",
                             "{\"id\":1,\"state\":\"RUNNING\"}",
                             "{\"id\":1,\"state\":\"QUEUED\",\"exits\":[{\"rank\":4}]}",
                             "{\"id\":1,\"state\":\"FAILED\",\"placement\":[{\"rank\":4}]}"}) {
    EXPECT_FALSE(job_from_record(record).ok()) << record;
  }
}

}  // namespace
}  // namespace muster::coordinator
