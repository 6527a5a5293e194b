// What a GPU's backend takes for a product, for attention, for training steps and for collectives. Each function measures one of them and
// returns its rows; README's figures are made of these alone.
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
};

// Numbers as a training has them: a device that multiplies constants takes less power, and its clocks are higher.
void fill_random(trainer::Backend& device, const trainer::Tensor& x);

// Seconds of one call among many that the device works off one behind another: the shortest of several turns. `wait` returns when all that was
// called is done.
double seconds_of(const std::function<void()>& call, const std::function<void()>& wait);

Json measure_products(const Bench& bench);
Json measure_attention(const Bench& bench);
// Whole training steps of one rank; their own backend each.
Json measure_training(const Bench& bench);
// All-reduces between ranks, one for each GPU; where there is one GPU, two that share it, through the host's memory.
Json measure_collectives(const Bench& bench);

}  // namespace muster::bench
