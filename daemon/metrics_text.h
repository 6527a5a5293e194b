// Pages of metrics in Prometheus' text format, letter for letter as prometheus-cpp's TextSerializer writes them. That one puts each letter of a label
// through a stream, for each bucket of a histogram anew, which is most of the time of a large page. Any thread.
#pragma once

#include <string>
#include <vector>

#include <prometheus/metric_family.h>

namespace muster::daemon {

// Of counters, gauges and histograms, the types of daemon/metric_table.h.
std::string metrics_text(const std::vector<prometheus::MetricFamily>& families);

}  // namespace muster::daemon
