#include "daemon/metrics_text.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace muster::daemon {
namespace {

TEST(MetricsText, EqualsTheLibrarysText) {
  prometheus::Registry registry;
  auto& gauges =
      prometheus::BuildGauge().Name("muster_some").Help("Some \\ \"help\".").Register(registry);
  const double values[] = {0,
                           -0.0,
                           1,
                           -1,
                           0.1,
                           1.0 / 3,
                           -2.5e-9,
                           1e15,
                           1e15 - 1,
                           1e16,
                           123456789012345680.0,
                           1.7e9 + 0.125,
                           1e-300,
                           1e300,
                           std::nextafter(1.0, 2.0),
                           std::numeric_limits<double>::denorm_min(),
                           INFINITY,
                           -INFINITY,
                           NAN};
  int number = 0;
  for (const double value : values)
    gauges.Add({{"number", std::to_string(number++)}, {"worker", "node1"}}).Set(value);
  gauges.Add({}).Set(4);
  gauges.Add({{"name", "a \"quoted\"\n\\ name"}, {"empty", ""}}).Set(5);
  prometheus::BuildGauge().Name("muster_none").Register(registry);
  prometheus::BuildCounter()
      .Name("muster_told_total")
      .Help("Received.")
      .Register(registry)
      .Add({{"how", "signal"}})
      .Increment(2.25);
  auto& histograms =
      prometheus::BuildHistogram().Name("muster_seconds").Help("Seconds.").Register(registry);
  histograms.Add({{"job_id", "1"}}, prometheus::Histogram::BucketBoundaries{0.005, 0.25, 1, 2.5e3})
      .Observe(0.2);
  histograms.Add({}, prometheus::Histogram::BucketBoundaries{}).Observe(7);
  const auto families = registry.Collect();
  EXPECT_EQ(metrics_text(families), prometheus::TextSerializer().Serialize(families));
  EXPECT_EQ(metrics_text({}), "");
}

}  // namespace
}  // namespace muster::daemon
