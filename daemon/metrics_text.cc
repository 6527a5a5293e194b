#include "daemon/metrics_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::daemon {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// The approximate size of a metric, to reserve memory for the page.
constexpr size_t kBytesOfMetric = 128;

void append_value(std::string& out, double value) {
  constexpr double kExact = 1e15;  // integers below this are written with all their digits
  constexpr int kDigits = 16;
  std::array<char, 32> text{};
  if (std::isnan(value)) {
    out += "Nan";
  } else if (std::isinf(value)) {
    out += value < 0 ? "-Inf" : "+Inf";
  } else if (std::abs(value) < kExact && value == std::trunc(value) && !std::signbit(value)) {
    absl::StrAppend(&out, static_cast<int64_t>(value));
  } else {
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                   std::chars_format::general, kDigits);
    out.append(text.data(), end.ptr);
  }
}

void append_escaped(std::string& out, std::string_view value) {
  for (size_t at = 0; at < value.size();) {
    const size_t special = std::min(value.find_first_of("\n\\\"", at), value.size());
    out.append(value, at, special - at);
    if (special == value.size()) return;
    out += '\\';
    out += value[special] == '\n' ? 'n' : value[special];
    at = special + 1;
  }
}

// Returns `a="1",b="2"`.
std::string labels_text(const ClientMetric& metric) {
  std::string text;
  for (const ClientMetric::Label& label : metric.label) {
    if (!text.empty()) text += ',';
    absl::StrAppend(&text, label.name, "=\"");
    append_escaped(text, label.value);
    text += '"';
  }
  return text;
}

void append_sample(std::string& out, std::string_view name, const char* suffix,
                   std::string_view labels, double value) {
  absl::StrAppend(&out, av(name), suffix);
  if (!labels.empty()) absl::StrAppend(&out, "{", av(labels), "}");
  out += ' ';
  append_value(out, value);
  out += '\n';
}

void append_histogram(std::string& out, const std::string& name, const std::string& labels,
                      const ClientMetric::Histogram& histogram) {
  append_sample(out, name, "_count", labels, static_cast<double>(histogram.sample_count));
  append_sample(out, name, "_sum", labels, histogram.sample_sum);
  double last = -INFINITY;
  std::string with_bound;
  const auto append_bucket = [&](double bound, uint64_t count) {
    with_bound.assign(labels);
    absl::StrAppend(&with_bound, labels.empty() ? "" : ",", "le=\"");
    append_value(with_bound, bound);
    with_bound += '"';
    append_sample(out, name, "_bucket", with_bound, static_cast<double>(count));
  };
  for (const ClientMetric::Bucket& bucket : histogram.bucket) {
    append_bucket(bucket.upper_bound, bucket.cumulative_count);
    last = bucket.upper_bound;
  }
  if (!std::isinf(last)) append_bucket(INFINITY, histogram.sample_count);
}

void append_family(std::string& out, const MetricFamily& family) {
  const std::string& name = family.name;
  if (!family.help.empty()) absl::StrAppend(&out, "# HELP ", name, " ", family.help, "\n");
  const bool is_counter = family.type == MetricType::Counter;
  const bool is_gauge = family.type == MetricType::Gauge;
  absl::StrAppend(&out, "# TYPE ", name,
                  is_counter ? " counter\n"
                  : is_gauge ? " gauge\n"
                             : " histogram\n");
  for (const ClientMetric& metric : family.metric) {
    const std::string labels = labels_text(metric);
    if (is_counter)
      append_sample(out, name, "", labels, metric.counter.value);
    else if (is_gauge)
      append_sample(out, name, "", labels, metric.gauge.value);
    else
      append_histogram(out, name, labels, metric.histogram);
  }
}

}  // namespace

std::string metrics_text(const std::vector<MetricFamily>& families) {
  std::string out;
  size_t metrics = 0;
  for (const MetricFamily& family : families) metrics += family.metric.size();
  out.reserve(metrics * kBytesOfMetric);
  for (const MetricFamily& family : families) append_family(out, family);
  return out;
}

}  // namespace muster::daemon
