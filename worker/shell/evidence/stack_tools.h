// The worker's tools for reading stacks, shared by dumps and periodic traces. A worker has one of
// each tool, because two samplers would take each other for debuggers, and because cached module
// data takes memory. Thread-safe.
#pragma once

#include "worker/stacks/stack_sampler.h"
#include "worker/stacks/symbolizer.h"

namespace muster::worker {

struct StackTools {
  StackSampler sampler;
  Symbolizer symbolizer;

  // Makes current and later reads return soon. Called when the worker ends.
  void stop() {
    sampler.stop();
    symbolizer.stop();
  }
};

}  // namespace muster::worker
