// The worker's stack reading tools, shared by dumps and periodic traces. One of each, because two
// samplers would take each other for debuggers, and because module data takes memory. Thread-safe.
#pragma once

#include "worker/stacks/stack_sampler.h"
#include "worker/stacks/symbolizer.h"

namespace muster::worker {

struct StackTools {
  StackSampler sampler;
  Symbolizer symbolizer;

  // Makes current and later reads return soon: the worker ends.
  void stop() {
    sampler.stop();
    symbolizer.stop();
  }
};

}  // namespace muster::worker
