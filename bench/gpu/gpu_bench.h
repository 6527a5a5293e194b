// Measures a GPU backend: GEMMs, attention, training steps and collectives. Each function measures
// one of these and reports every row of results immediately, so that the rows of an interrupted run
// are not lost.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer_core/ops/backend.h"

namespace muster::bench {

using Json = nlohmann::ordered_json;

// Peak rates in the device's data sheet (trainer_core/report/device_peaks.h), in TFLOP/s; 0:
// unknown.
struct Specification {
  double bf16_tflops = 0;
  double fp32_tflops = 0;  // without tensor cores
};
// Returns the peak rates of the device with this name.
Specification specification_of(const std::string& device);

// The device to measure, and the receiver of rows.
struct Bench {
  trainer::Backend& device;
  Specification spec;
  bool small = false;  // true: use shapes that the emulated device computes within seconds
  std::function<void(Json row)> report = nullptr;
};

// Fills x with random values as in training, because a device that multiplies constants takes less
// power and runs at higher clocks.
void fill_random(trainer::Backend& device, const trainer::Tensor& x);

// Enqueues many calls back to back, several times, and returns the lowest seconds per call. `wait`:
// blocks until all enqueued work is complete.
double seconds_of(const std::function<void()>& call, const std::function<void()>& wait);

// Measures GEMMs of several shapes and types.
void measure_products(const Bench& bench);
// Measures the forward and backward passes of attention.
void measure_attention(const Bench& bench);
// Measures training steps of one rank; each row's model has its own backend.
void measure_training(const Bench& bench);
// Runs one training step of the row with the 125M model between cudaProfilerStart and
// cudaProfilerStop, without CUDA graphs, for NVIDIA's profiler ncu. Reports the workload.
// bench/gpu/kernel_table.py reads ncu's output.
void record_step(const Bench& bench);
// Measures all-reduces between ranks, one per GPU. On a single GPU, two ranks share the GPU and
// communicate through host memory.
void measure_collectives(const Bench& bench);

}  // namespace muster::bench
