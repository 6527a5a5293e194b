// Measures the speed of bfloat16 relative to float32 on this CPU, which determines the default of
// `dtype`.
#pragma once

namespace muster::trainer {

// The CPU time of the GEMMs of a dense layer, forward and backward, on one thread: the minimum of
// several measurements. Time in which the thread waits for a CPU does not count: the result is kept
// for all later runs, and the machine may be busy now.
struct CpuSpeed {
  double float32_seconds = 0;
  double bfloat16_seconds = 0;

  // Returns the speed of bfloat16 relative to float32; above 1, bfloat16 is faster.
  double ratio() const { return float32_seconds / bfloat16_seconds; }
};

// Measures the speeds, which takes some tenths of a second. Measurements of both types alternate,
// so that other load on the machine affects both.
CpuSpeed measure_cpu_speed();

}  // namespace muster::trainer
