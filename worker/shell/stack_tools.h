// What the worker reads stacks with, for dumps and for traces by the clock: one of each, because two samplers would take each other for
// debuggers, and because what is known of modules takes memory. Any thread.
#pragma once

#include "worker/stacks/stack_sampler.h"
#include "worker/stacks/symbolizer.h"

namespace muster::worker {

struct StackTools {
  StackSampler sampler;
  Symbolizer symbolizer;

  // Whoever reads comes back soon: the worker ends.
  void stop() {
    sampler.stop();
    symbolizer.stop();
  }
};

}  // namespace muster::worker
