// Metrics pages in Prometheus' text format, with the same bytes as prometheus-cpp's TextSerializer,
// but faster: the TextSerializer writes each label character by character for each histogram
// bucket, which takes most of the time of a large page. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include <prometheus/metric_family.h>

namespace muster::daemon {

// Returns the page. Supports counters, gauges and histograms, the types of daemon/metric_table.h.
std::string metrics_text(const std::vector<prometheus::MetricFamily>& families);

}  // namespace muster::daemon
