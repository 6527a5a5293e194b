// The speed of bfloat16 relative to float32 on this CPU, which decides the default of `dtype`.
#pragma once

namespace muster::trainer {

// Seconds for the GEMMs of one dense layer, forward and backward, on one thread: the best of
// several.
struct CpuSpeed {
  double float32_seconds = 0;
  double bfloat16_seconds = 0;

  // The speed of bfloat16; above 1 it is the faster one.
  double ratio() const { return float32_seconds / bfloat16_seconds; }
};

// Takes some tenths of a second. The two types alternate, so that other load disturbs both.
CpuSpeed measure_cpu_speed();

}  // namespace muster::trainer
