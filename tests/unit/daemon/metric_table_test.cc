#include "daemon/metric_table.h"

#include <set>
#include <string>
#include <vector>

#include <absl/strings/str_split.h>
#include <gtest/gtest.h>

#include "common/text/absl_view.h"
#include "daemon/metric_words.h"

namespace muster::daemon {
namespace {

// https://prometheus.io/docs/practices/naming/, as far as a program can check.
TEST(MetricTableTest, NamesFollowPrometheusConventions) {
  std::set<std::string_view> names;
  for (const Metric& metric : kMetrics) {
    SCOPED_TRACE(metric.name);
    EXPECT_TRUE(names.insert(metric.name).second) << "listed twice";
    // process_… are the names that all of Prometheus' client libraries use.
    EXPECT_TRUE(metric.name.starts_with("muster_") || metric.name.starts_with("process_"));
    EXPECT_EQ(metric.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"),
              std::string_view::npos);
    EXPECT_EQ(metric.name.ends_with("_total"), metric.type == MetricType::kCounter);
    EXPECT_TRUE(metric.type != MetricType::kHistogram || metric.name.ends_with("_seconds"));
    for (const char* suffix : {"_count", "_sum", "_bucket", "_ms", "_milliseconds", "_percent"})
      EXPECT_FALSE(metric.name.ends_with(suffix));
    EXPECT_TRUE(metric.help.ends_with('.'));
    EXPECT_EQ(find_metric(metric.name), &metric);
  }
  EXPECT_EQ(find_metric("muster_nothing"), nullptr);
}

TEST(MetricTableTest, LabelsAreSortedAndNeverThoseOfPrometheus) {
  for (const Metric& metric : kMetrics) {
    SCOPED_TRACE(metric.name);
    std::string last;
    const std::vector<std::string> labels =
        absl::StrSplit(av(metric.labels), ' ', absl::SkipEmpty());
    for (const std::string& label : labels) {
      EXPECT_LT(last, label);
      EXPECT_NE(label, "job") << "a label of the scrape target";
      EXPECT_NE(label, "instance") << "a label of the scrape target";
      EXPECT_NE(label, "le") << "a label of histograms";
      last = label;
    }
  }
}

TEST(MetricTableTest, ASampleIsSpreadEvenlyAndHasABound) {
  for (const int64_t count : {1, 7, 63, 64, 65, 1'000, 100'000}) {
    int64_t shown = 0;
    for (int64_t i = 0; i < count; ++i) shown += is_sampled(i, count, 64) ? 1 : 0;
    EXPECT_LE(shown, 64) << count;
    EXPECT_GE(shown, std::min<int64_t>(count, 32)) << count;
    EXPECT_TRUE(is_sampled(0, count, 1));
    EXPECT_FALSE(is_sampled(0, count, 0));
  }
  EXPECT_FALSE(is_sampled(1, 100, 1));
}

}  // namespace
}  // namespace muster::daemon
