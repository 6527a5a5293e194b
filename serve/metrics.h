// The metrics of the server, on /metrics. Thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "common/time/time.h"
#include "trainer_core/generation/engine.h"

namespace muster::serve {

class Metrics {
 public:
  Metrics();

  void count_request(int status);
  void observe_first_token(Duration time) { first_token_.Observe(to_seconds(time)); }
  void observe_request(Duration time) { request_.Observe(to_seconds(time)); }
  // Returns the text of the page.
  std::string page(const trainer::EngineStats& stats, size_t connections);

 private:
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Histogram& first_token_;
  prometheus::Histogram& request_;
};

}  // namespace muster::serve
