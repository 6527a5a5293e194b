#include "serve/metrics.h"

#include <vector>

#include "daemon/metrics_text.h"

namespace muster::serve {
namespace {

const prometheus::Histogram::BucketBoundaries kSeconds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                          1,     2.5,  5,     10,   25,  60,   300};

prometheus::Histogram& histogram(prometheus::Registry& registry, const char* name,
                                 const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, kSeconds);
}

prometheus::MetricFamily family(const char* name, const char* help, prometheus::MetricType type,
                                double value) {
  prometheus::ClientMetric metric;
  metric.gauge.value = metric.counter.value = value;
  return {name, help, type, {metric}};
}

}  // namespace

Metrics::Metrics()
    : requests_(prometheus::BuildCounter()
                    .Name("muster_serve_requests_total")
                    .Help("Requests to /v1, by the status of the response.")
                    .Register(registry_)),
      first_token_(histogram(registry_, "muster_serve_first_token_seconds",
                             "Time from a request to the first token of its output.")),
      request_(histogram(registry_, "muster_serve_request_seconds",
                         "Time from a request for a completion to the end of its response.")) {}

void Metrics::count_request(int status) {
  requests_.Add({{"code", std::to_string(status)}}).Increment();
}

std::string Metrics::page(const trainer::EngineStats& stats, size_t connections) {
  constexpr auto kGauge = prometheus::MetricType::Gauge;
  constexpr auto kCounter = prometheus::MetricType::Counter;
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  const auto add = [&](const char* name, const char* help, prometheus::MetricType type,
                       auto value) {
    families.push_back(family(name, help, type, static_cast<double>(value)));
  };
  add("muster_serve_connections", "Open connections of clients.", kGauge, connections);
  add("muster_serve_running", "Outputs that are being generated.", kGauge, stats.running);
  add("muster_serve_waiting", "Outputs that wait for a place in the batch.", kGauge, stats.waiting);
  add("muster_serve_cache_blocks", "Blocks of the key/value cache.", kGauge, stats.blocks);
  add("muster_serve_cache_free_blocks", "Free blocks of the key/value cache.", kGauge,
      stats.free_blocks);
  add("muster_serve_steps_total", "Steps of the model.", kCounter, stats.steps);
  add("muster_serve_prompt_tokens_total", "Computed tokens of prompts.", kCounter,
      stats.prompt_tokens);
  add("muster_serve_output_tokens_total", "Generated tokens.", kCounter, stats.output_tokens);
  add("muster_serve_preemptions_total",
      "Outputs that gave up their blocks for others and were computed again.", kCounter,
      stats.preemptions);
  return daemon::metrics_text(families);
}

}  // namespace muster::serve
