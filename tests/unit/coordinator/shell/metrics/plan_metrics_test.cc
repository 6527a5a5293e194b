// The metrics that compare jobs with their plans.
#include <utility>

#include "coordinator/shell/metrics/job_metrics.h"
#include "tests/unit/coordinator/shell/metrics/metrics_fixture.h"

namespace muster::coordinator {
namespace {

TEST_F(MetricsTest, ThePartsOfStepsAreAdded) {
  const auto beat = [&](int steps, uint32_t attempt, double communication, double data) {
    HeartbeatReceived result = heartbeat(0, steps, attempt);
    result.ranks[0].collective_wait_seconds = communication;
    result.ranks[0].data_wait_seconds = data;
    result.ranks[0].checkpoints.stall_seconds = 0.5;
    step(result);
  };
  const auto part = [](const char* name, const char* value) {
    return absl::StrCat("muster_job_step_part_seconds_total{job_id=\"1\",name=\"llama\",part=\"",
                        name, "\"} ", value, "\n");
  };
  EXPECT_THAT(page(), HasSubstr(part("data", "0")));
  beat(4, 1, 0.25, 0.125);
  beat(8, 1, 0.5, 0.25);
  for (const auto& [name, value] :
       {std::pair("computation", "1.25"), std::pair("communication", "0.5"),
        std::pair("data", "0.25"), std::pair("checkpoint", "0.5")})
    EXPECT_THAT(page(), HasSubstr(part(name, value)));
  restart();
  beat(4, 2, 0.25, 0);
  EXPECT_THAT(page(), HasSubstr(part("communication", "0.75")));
  EXPECT_THAT(page(), HasSubstr(part("checkpoint", "1")));
}

TEST_F(MetricsTest, AJobWithAPlanShowsIt) {
  EXPECT_THAT(page(), Not(HasSubstr("muster_job_planned_step_seconds{")));
  JobSpec spec;
  spec.name = "planned";
  spec.output_directory = "/planned";
  spec.planned_step_us = 1'500'000;
  spec.planned_communication_us = 250'000;
  spec.planned_data_us = 125'000;
  spec.planned_checkpoint_us = 500'000;
  spec.planned_memory_bytes = 1024;
  step(WorkerRegistered{
      WorkerName("node2"), Incarnation(9), "test", "h", 2, "h:1", {}, {}, {}, {}, {}, 1});
  step(JobSubmitted{RequestToken(2), "", spec, 1});
  const std::string now = page();
  const std::string labels = "{job_id=\"2\",name=\"planned\"} ";
  EXPECT_THAT(now, HasSubstr("muster_job_planned_step_seconds" + labels + "1.5\n"));
  EXPECT_THAT(now, HasSubstr("muster_job_planned_communication_seconds" + labels + "0.25\n"));
  EXPECT_THAT(now, HasSubstr("muster_job_planned_data_seconds" + labels + "0.125\n"));
  EXPECT_THAT(now, HasSubstr("muster_job_planned_checkpoint_seconds" + labels + "0.5\n"));
  EXPECT_THAT(now, HasSubstr("muster_job_planned_memory_bytes" + labels + "1024\n"));
}

}  // namespace
}  // namespace muster::coordinator
