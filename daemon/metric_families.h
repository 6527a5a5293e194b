// Creates families of prometheus-cpp's metrics from their rows in daemon/metric_table.h:
//
//   prometheus::Family<prometheus::Gauge>& jobs = gauges<"muster_jobs">(registry);
//
// A name without a row, or with a row of another type, does not compile. The functions are as
// thread-safe as the registry.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "daemon/metric_table.h"

namespace muster::daemon {

// A string that can be a template argument.
template <size_t N>
struct MetricName {
  // NOLINTNEXTLINE(google-explicit-constructor,modernize-avoid-c-arrays)
  constexpr MetricName(const char (&name)[N]) { std::copy_n(name, N, text); }
  constexpr std::string_view view() const { return {text, N - 1}; }

  char text[N]{};  // NOLINT(modernize-avoid-c-arrays)
};

// Returns the row of a metric, checked at compile time.
template <MetricName name, MetricType type>
constexpr const Metric& declared_metric() {
  constexpr const Metric* metric = find_metric(name.view());
  static_assert(metric != nullptr, "daemon/metric_table.h has no such metric");
  static_assert(metric->type == type, "daemon/metric_table.h has it as another type");
  return *metric;
}

template <MetricName name>
prometheus::Family<prometheus::Gauge>& gauges(prometheus::Registry& registry) {
  const Metric& metric = declared_metric<name, MetricType::kGauge>();
  return prometheus::BuildGauge()
      .Name(std::string(metric.name))
      .Help(std::string(metric.help))
      .Register(registry);
}

template <MetricName name>
prometheus::Family<prometheus::Counter>& counters(prometheus::Registry& registry) {
  const Metric& metric = declared_metric<name, MetricType::kCounter>();
  return prometheus::BuildCounter()
      .Name(std::string(metric.name))
      .Help(std::string(metric.help))
      .Register(registry);
}

template <MetricName name>
prometheus::Family<prometheus::Histogram>& histograms(prometheus::Registry& registry) {
  const Metric& metric = declared_metric<name, MetricType::kHistogram>();
  return prometheus::BuildHistogram()
      .Name(std::string(metric.name))
      .Help(std::string(metric.help))
      .Register(registry);
}

}  // namespace muster::daemon
