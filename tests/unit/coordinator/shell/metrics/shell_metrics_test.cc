#include "coordinator/shell/metrics/shell_metrics.h"

#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <string>

#include <absl/strings/str_cat.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include "muster/v1/muster.pb.h"

namespace muster::coordinator {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

TEST(ShellMetrics, ShowsTheLoop) {
  ShellMetrics metrics;
  metrics.begin_epoch(Epoch(7));
  metrics.count_event(HeartbeatReceived{}, milliseconds(3));
  metrics.count_event(HeartbeatReceived{}, milliseconds(700));
  metrics.count_event(Tick{}, Duration{});
  metrics.count_transaction(milliseconds(20));
  metrics.count_failed_transaction(absl::ResourceExhaustedError("full"));
  metrics.count_registration(Registration::kReconnected);
  const std::string page = metrics.render({12, milliseconds(1500), true});
  for (const char* line : {
           "muster_coordinator_loop_lag_seconds_count 3\n",
           "muster_coordinator_loop_lag_seconds_bucket{le=\"0.001\"} 1\n",
           "muster_coordinator_loop_lag_seconds_bucket{le=\"0.005\"} 2\n",
           "muster_coordinator_loop_lag_seconds_bucket{le=\"1\"} 3\n",
           "muster_coordinator_oldest_event_age_seconds 1.5\n",
           "muster_coordinator_event_queue_length 12\n",
           "muster_coordinator_event_queue_limit 262144\n",
           "muster_coordinator_events_total{event=\"heartbeat\"} 2\n",
           "muster_coordinator_events_total{event=\"job_submitted\"} 0\n",
           "muster_coordinator_transaction_seconds_sum 0.02\n",
           "muster_coordinator_transaction_failures_total{reason=\"no_space\"} 1\n",
           "muster_coordinator_transaction_failures_total{reason=\"other\"} 0\n",
           "muster_coordinator_registrations_total{result=\"new\"} 0\n",
           "muster_coordinator_registrations_total{result=\"reconnected\"} 1\n",
           "muster_coordinator_epoch 7\n",
           "muster_coordinator_leader 1\n",
       })
    EXPECT_THAT(page, HasSubstr(line));
  EXPECT_THAT(metrics.render({}), HasSubstr("muster_coordinator_leader 0\n"));
}

TEST(ShellMetrics, ShowsTheDiskOfTheState) {
  ShellMetrics metrics;
  EXPECT_THAT(metrics.render({}), Not(HasSubstr("muster_coordinator_disk_free_bytes ")))
      << "unknown";
  metrics.show_disk("/");
  const std::string page = metrics.render({});
  EXPECT_THAT(page, HasSubstr("muster_coordinator_disk_bytes "));
  EXPECT_THAT(page, HasSubstr("muster_coordinator_disk_free_bytes "));
}

TEST(ShellMetrics, CountsRpcsByMethodAndCode) {
  ShellMetrics metrics;
  metrics.count_rpc("GetJob", absl::OkStatus());
  metrics.count_rpc("GetJob", absl::NotFoundError("no"));
  metrics.count_rpc("GetJob", absl::NotFoundError("no"));
  metrics.time_rpc("GetJob", milliseconds(30));
  const std::string page = metrics.render({});
  EXPECT_THAT(page, HasSubstr("muster_coordinator_rpcs_total{code=\"OK\",method=\"GetJob\"} 1\n"));
  EXPECT_THAT(page,
              HasSubstr("muster_coordinator_rpcs_total{code=\"NOT_FOUND\",method=\"GetJob\"} 2\n"));
  EXPECT_THAT(page,
              HasSubstr("muster_coordinator_rpc_seconds_bucket{method=\"GetJob\",le=\"0.1\"} 1\n"));
}

// Prometheus sees no increase if a series begins with 1.
TEST(ShellMetrics, EachMethodHasSeriesFromTheStart) {
  const std::string page = ShellMetrics().render({});
  const auto* file = google::protobuf::DescriptorPool::generated_pool()->FindFileByName(
      v1::Job::descriptor()->file()->name());
  for (int i = 0; i < file->service_count(); ++i) {
    for (int j = 0; j < file->service(i)->method_count(); ++j) {
      const auto* method = file->service(i)->method(j);
      const std::string label = absl::StrCat("method=\"", method->name(), "\"");
      EXPECT_THAT(page, HasSubstr(absl::StrCat("rpcs_total{code=\"OK\",", label, "} 0\n")));
      EXPECT_THAT(page, HasSubstr(method->server_streaming()
                                      ? absl::StrCat("muster_coordinator_streams{", label, "} 0\n")
                                      : absl::StrCat("rpc_seconds_count{", label, "} 0\n")));
    }
  }
}

TEST(ShellMetrics, AStreamIsCountedUntilItIsDestroyed) {
  const auto metrics = std::make_shared<ShellMetrics>();
  const std::string open = "muster_coordinator_streams{method=\"WatchJob\"} ";
  EXPECT_THAT(metrics->render({}), HasSubstr(open + "0\n"));
  {
    const StreamCount one(metrics, "WatchJob");
    const StreamCount other(metrics, "WatchJob");
    EXPECT_THAT(metrics->render({}), HasSubstr(open + "2\n"));
    one.count_end(absl::CancelledError("gone"));
    EXPECT_THAT(metrics->render({}), HasSubstr(open + "2\n"));
  }
  const std::string page = metrics->render({});
  EXPECT_THAT(page, HasSubstr(open + "0\n"));
  EXPECT_THAT(
      page, HasSubstr("muster_coordinator_rpcs_total{code=\"CANCELLED\",method=\"WatchJob\"} 1\n"));
}

}  // namespace
}  // namespace muster::coordinator
