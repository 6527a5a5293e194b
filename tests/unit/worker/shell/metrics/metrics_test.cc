#include "worker/shell/metrics/metrics.h"

#include <gmock/gmock.h>

#include <string>

#include "tests/unit/worker/core/core_fixture.h"
#include "worker/gpus/nvml_api.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MetricsTest : public CoreTest {
 protected:
  MetricsTest() {
    connect();
    StartRanks event = start(1, 2, 1);
    event.launch.spec.name = "llama";
    start_up(event);
  }

  std::string page() {
    metrics_.update(core, now);
    return metrics_.text(now);
  }
  void read(const RankFigures& figures) { step(PageResults{{{key(1, 2, 0), figures}}}); }

  Metrics metrics_{{.version = "1", .worker = "node0"}};
};

TEST_F(MetricsTest, FiguresBeginWithTheFirstStepAndEndWithTheRank) {
  const std::string labels = "{attempt=\"2\",job_id=\"1\",name=\"llama\",rank=\"0\"} ";
  RankFigures figures;
  figures.step = 100;  // restored from a checkpoint
  figures.device_peak_tflops = 4;
  read(figures);
  EXPECT_THAT(page(), HasSubstr("muster_rank_progress_age_seconds" + labels));
  for (const char* figure : {"step", "loss", "grad_norm", "tokens_per_second", "mfu_ratio"})
    EXPECT_THAT(page(), Not(HasSubstr("muster_rank_" + std::string(figure) + "{"))) << figure;

  RankFigures next = figures;
  next.step = 101;
  next.loss = 2.5;
  next.grad_norm = 0.5;
  next.step_seconds = 0.25;
  next.tokens_per_second = 800;
  next.tflops_per_device = 1;
  next.data_wait_seconds = 0.125;
  next.step_times.add(0.25);
  metrics_.count_steps(figures, next);
  read(next);
  for (const char* figure : {"step", "loss", "grad_norm", "tokens_per_second", "mfu_ratio"})
    EXPECT_THAT(page(), HasSubstr("muster_rank_" + std::string(figure) + labels)) << figure;
  EXPECT_THAT(page(), HasSubstr("muster_rank_mfu_ratio" + labels + "0.25\n"));
  EXPECT_THAT(page(), HasSubstr("muster_rank_data_wait_seconds_total" + labels + "0.125\n"));
  EXPECT_THAT(page(), Not(HasSubstr("muster_rank_eval_loss{")));
  next.data_wait_seconds = 0.5;
  next.eval_step = 101;
  next.eval_loss = 3.5;
  read(next);
  EXPECT_THAT(page(), HasSubstr("muster_rank_data_wait_seconds_total" + labels + "0.5\n"));
  EXPECT_THAT(page(), HasSubstr("muster_rank_eval_loss" + labels + "3.5\n"));
  EXPECT_THAT(page(), HasSubstr("muster_worker_step_seconds_count 1\n"));

  RankReaped end;
  end.key = key(1, 2, 0);
  step(end);
  EXPECT_THAT(page(), Not(HasSubstr("muster_rank_step{")));
  EXPECT_THAT(page(), Not(HasSubstr("muster_rank_data_wait_seconds_total{")));
  EXPECT_THAT(page(), Not(HasSubstr("muster_rank_eval_loss{")));
  EXPECT_THAT(page(), HasSubstr("muster_worker_step_seconds_count 1\n"));
}

TEST_F(MetricsTest, OfALargeJobASampleOfRanksHasSeries) {
  Metrics metrics({.version = "1", .worker = "node0", .rank_series = 2});
  StartRanks event = start(2, 1, 3);
  event.launch.spec.name = "llama";
  start_up(event);
  metrics.update(core, now);
  const std::string text = metrics.text(now);
  const std::string age =
      "muster_rank_progress_age_seconds{attempt=\"1\",job_id=\"2\",name=\"llama\",rank=\"";
  for (const int rank : {0, 2}) EXPECT_THAT(text, HasSubstr(age + std::to_string(rank) + "\"}"));
  EXPECT_THAT(text, Not(HasSubstr(age + "1\"}")));
  EXPECT_THAT(text,
              HasSubstr("muster_worker_progress_age_max_seconds{job_id=\"2\",name=\"llama\"}"));
  EXPECT_THAT(text, HasSubstr("muster_worker_ranks_running 4\n"));
}

TEST_F(MetricsTest, TheDiskOfItsFolderIsMeasured) {
  Metrics metrics({.version = "1", .worker = "node0", .work_dir = "/tmp"});
  EXPECT_THAT(metrics.text(now), HasSubstr("\nmuster_worker_disk_free_bytes "));
  Metrics nowhere({.version = "1", .worker = "node0", .work_dir = "/nowhere/at/all"});
  EXPECT_THAT(nowhere.text(now), Not(HasSubstr("\nmuster_worker_disk_free_bytes ")));
}

TEST_F(MetricsTest, TheHeartbeatsAgeIsThatOfTheScrape) {
  EXPECT_THAT(page(), Not(HasSubstr("\nmuster_worker_heartbeat_age_seconds ")));
  metrics_.count_heartbeat(now);
  EXPECT_THAT(metrics_.text(now + seconds(3)),
              HasSubstr("\nmuster_worker_heartbeat_age_seconds 3\n"));
}

TEST_F(MetricsTest, CheckpointsAreCountedOnceHoweverOftenTheirPageIsRead) {
  RankFigures before, after;
  before.checkpoints = {.saved = 1, .failed = 0, .seconds = 2, .stall_seconds = 0.5};
  after.checkpoints = {.saved = 4, .failed = 1, .seconds = 3, .stall_seconds = 0.75};
  after.checkpoint_step = 40;
  metrics_.count_steps(RankFigures(), before);
  metrics_.count_steps(before, after);
  metrics_.count_steps(after, after);
  metrics_.count_steps(after, before);  // no later state: a page of another process
  read(after);
  const std::string text = page();
  const std::string labels = "{attempt=\"2\",job_id=\"1\",name=\"llama\",rank=\"0\"} ";
  EXPECT_THAT(text, HasSubstr("muster_worker_checkpoints_total{outcome=\"saved\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("muster_worker_checkpoints_total{outcome=\"failed\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("muster_worker_checkpoint_stall_seconds_total 0.75\n"));
  EXPECT_THAT(text, HasSubstr("muster_rank_checkpoint_step" + labels + "40\n"));
  EXPECT_THAT(text, HasSubstr("muster_rank_last_checkpoint_seconds" + labels + "3\n"));
}

TEST_F(MetricsTest, GpusHaveSeriesForSupportedValues) {
  GpuReport report;
  report.is_listed = true;
  report.answered = now - seconds(3);
  report.gpus.resize(2);
  report.gpus[0].gpu = {.index = 3, .uuid = "GPU-3", .name = "H100", .memory_bytes = 80};
  report.gpus[0].problem = "GPU 3 is lost";
  report.gpus[0].xids = {{79, 1}};
  report.gpus[0].health.throttle_reasons = kThrottleThermalSoftware;
  report.gpus[0].health.ecc_uncorrected = 7;
  report.gpus[0].health.sm_clock_hertz = 1e9;
  report.gpus[1].gpu.index = 4;
  metrics_.set_gpus(report, now);
  const std::string text = page();
  for (const char* line : {"muster_worker_gpus 2\n", "muster_worker_gpus_used 0\n",
                           "muster_worker_gpu_answer_age_seconds 3\n",
                           "muster_gpu_info{gpu=\"3\",model=\"H100\",uuid=\"GPU-3\"} 1\n",
                           "muster_gpu_healthy{gpu=\"3\"} 0\n", "muster_gpu_healthy{gpu=\"4\"} 1\n",
                           "muster_gpu_throttled{gpu=\"3\",reason=\"thermal\"} 1\n",
                           "muster_gpu_throttled{gpu=\"3\",reason=\"power_cap\"} 0\n",
                           "muster_gpu_ecc_errors_total{gpu=\"3\",type=\"uncorrected\"} 7\n",
                           "muster_gpu_clock_hertz{clock=\"sm\",gpu=\"3\"} 1000000000\n",
                           "muster_gpu_xid_errors_total{gpu=\"3\",xid=\"79\"} 1\n"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, Not(HasSubstr("muster_gpu_temperature_celsius{")));
  report.gpus[0].health.ecc_uncorrected = 1;  // the driver was loaded again
  metrics_.set_gpus(report, now);
  EXPECT_THAT(page(), HasSubstr("type=\"uncorrected\"} 1\n"));
}

TEST_F(MetricsTest, NetworkDevicesHaveSeriesForSupportedValues) {
  NetworkDevice port;
  port.name = "mlx5_0 port 1";
  port.kind = NetworkKind::kRoce;
  port.link = LinkState::kUp;
  port.is_needed = true;
  port.gigabits_per_second = 400;
  port.counters.sent_bytes = 8;
  port.counters.timeouts = 3;
  NetworkDevice gone;
  gone.name = "eth0";
  gone.link = LinkState::kUp;
  gone.counters.errors = 1;
  NetworkReport report;
  add_reading(report, {port, gone}, now);
  port.link = LinkState::kDown;
  port.gigabits_per_second.reset();
  port.counters.timeouts = 1;  // the driver was loaded again
  metrics_.set_network(report, now);
  EXPECT_THAT(page(), HasSubstr("muster_network_up{device=\"eth0\",kind=\"ethernet\"} 1\n"));
  add_reading(report, {port}, now + seconds(5));
  metrics_.set_network(report, now + seconds(9));
  const std::string text = page();
  for (const char* line :
       {"muster_network_up{device=\"mlx5_0 port 1\",kind=\"roce\"} 0\n",
        "muster_network_healthy{device=\"mlx5_0 port 1\"} 0\n",
        "muster_network_rate_bits_per_second{device=\"mlx5_0 port 1\"} 0\n",
        "muster_network_bytes_total{device=\"mlx5_0 port 1\",direction=\"sent\"} 8\n",
        "muster_network_errors_total{device=\"mlx5_0 port 1\",type=\"timeout\"} 1\n",
        "muster_network_reading_age_seconds 4\n"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, Not(HasSubstr("type=\"dropped\"")));
  EXPECT_THAT(text, Not(HasSubstr("eth0")));
}

}  // namespace
}  // namespace muster::worker
