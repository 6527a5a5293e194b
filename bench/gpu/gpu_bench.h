// Times of a GPU backend: matrix products, attention, training steps and collectives. Each function measures one of
// them and reports every row as soon as it is measured, so that a run that is cut off leaves what it has.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer_core/ops/backend.h"

namespace muster::bench {

using Json = nlohmann::ordered_json;

// Of the device's data sheet: dense, without sparsity. 0: a device that is not in the table.
struct Specification {
  double bf16_tflops = 0;
  double fp32_tflops = 0;  // without tensor cores
};
Specification specification_of(const std::string& device);

struct Bench {
  trainer::Backend& device;
  Specification spec;
  bool small = false;  // shapes that a processor emulates in seconds
  std::function<void(Json row)> report = nullptr;
};

// Numbers as a training has them: a device that multiplies constants takes less power, and its clocks are higher.
void fill_random(trainer::Backend& device, const trainer::Tensor& x);

// Seconds of one call among many that the device works off one behind another: the shortest of several turns. `wait` returns when all that was
// called is done.
double seconds_of(const std::function<void()>& call, const std::function<void()>& wait);

void measure_products(const Bench& bench);
void measure_attention(const Bench& bench);
// Whole training steps of one rank; their own backend each.
void measure_training(const Bench& bench);
// One step of the 125M row between cudaProfilerStart and cudaProfilerStop, without CUDA graphs: for ncu, which
// bench/gpu/kernel_table.py reads. Reports the workload.
void record_step(const Bench& bench);
// All-reduces between ranks, one for each GPU; where there is one GPU, two that share it, through the host's memory.
void measure_collectives(const Bench& bench);

}  // namespace muster::bench
