// Measures a GPU backend: GEMMs, attention, training steps and collectives. Each function measures
// one of them and reports every row as soon as it is measured, so that an interrupted run leaves
// the rows before.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer_core/ops/backend.h"

namespace muster::bench {

using Json = nlohmann::ordered_json;

// Peak rates of the device's data sheet (trainer_core/report/device_peaks.h); 0: it has none.
struct Specification {
  double bf16_tflops = 0;
  double fp32_tflops = 0;  // without tensor cores
};
Specification specification_of(const std::string& device);

struct Bench {
  trainer::Backend& device;
  Specification spec;
  bool small = false;  // use shapes that a CPU emulates in seconds
  std::function<void(Json row)> report = nullptr;
};

// Fills x with random values, as in a training: a device that multiplies constants takes less
// power, and its clocks are higher.
void fill_random(trainer::Backend& device, const trainer::Tensor& x);

// Returns the seconds per call of many calls enqueued back to back: the minimum over several
// iterations. `wait` returns when all enqueued work is complete.
double seconds_of(const std::function<void()>& call, const std::function<void()>& wait);

void measure_products(const Bench& bench);
void measure_attention(const Bench& bench);
// Whole training steps of one rank, each with a backend of its own.
void measure_training(const Bench& bench);
// Runs one step of the 125M row between cudaProfilerStart and cudaProfilerStop, without CUDA
// graphs, for ncu; bench/gpu/kernel_table.py reads ncu's output. Reports the workload.
void record_step(const Bench& bench);
// All-reduces between ranks, one per GPU. With a single GPU, two ranks share it and communicate
// through host memory.
void measure_collectives(const Bench& bench);

}  // namespace muster::bench
