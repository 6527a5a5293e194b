// Measures the CUDA backend on this machine's GPUs. Prints JSON lines: the device, then each row
// with its part as soon as it is measured.
//
//   gpu_bench [products] [attention] [training] [collectives]     default: all of them
//   gpu_bench profile                        one step under ncu --profile-from-start off
//
// Exits with status 77 and a message if there is no GPU: nothing was measured. tests/gpu/run.sh
// --bench adds driver, clocks and commit.
#include <algorithm>
#include <array>
#include <iostream>
#include <string_view>
#include <vector>

#include "bench/gpu/gpu_bench.h"
#include "common/random/philox.h"
#include "common/time/time.h"
#include "trainer_core/base/bf16.h"
#include "trainer_core/ops/cuda/device/cuda.h"
#include "trainer_core/report/device_peaks.h"

namespace muster::bench {
namespace {

constexpr int kNoGpu = 77;

constexpr std::string_view kProfile = "profile";

struct Part {
  std::string_view name;
  void (*measure)(const Bench&);
};
constexpr std::array kParts = {
    Part{"products", measure_products}, Part{"attention", measure_attention},
    Part{"training", measure_training}, Part{"collectives", measure_collectives},
    Part{kProfile, record_step}};

// Flushes, so that a killed process leaves the rows before.
void print(const Json& row) { std::cout << row.dump() << std::endl; }

int run(const std::vector<std::string_view>& names) {
  for (const std::string_view name : names) {
    if (std::ranges::find(kParts, name, &Part::name) != kParts.end()) continue;
    std::cerr << "gpu_bench: there is no part '" << name
              << "'; there are products attention training collectives profile" << std::endl;
    return 2;
  }
  const auto found = trainer::find_cuda_device(0);
  // Scratch for the workspaces of the largest GEMMs and attention shapes here.
  const auto device =
      found.ok() ? trainer::gpu_backend({.scratch_bytes = size_t{1} << 30}) : found.status();
  if (!device.ok()) {
    std::cerr << "no GPU to measure: " << device.status().message() << std::endl;
    return kNoGpu;
  }
  Bench bench{**device, specification_of(found->name), found->name == "emulated GPU"};
  print({{"device", found->name},
         {"gpus", trainer::gpu_count()},
         {"compute_capability", found->capability / 10.0},
         {"multiprocessors", found->multiprocessors},
         {"driver_knows_cuda", found->driver_version / 1000.0},
         {"backend", (*device)->ops().name()},
         {"specified_bf16_tflops", bench.spec.bf16_tflops},
         {"specified_fp32_tflops", bench.spec.fp32_tflops}});
  for (const Part& part : kParts) {
    const bool is_requested = std::ranges::find(names, part.name) != names.end();
    if (!is_requested && (!names.empty() || part.name == kProfile)) continue;
    bench.report = [&part](const Json& measured) {
      Json row = {{"part", part.name}};
      row.update(measured);
      print(row);
    };
    part.measure(bench);
  }
  return 0;
}

}  // namespace

Specification specification_of(const std::string& device) {
  const auto peak_of = [&](trainer::ComputeType dtype) {
    trainer::TrainConfig config;
    config.dtype = dtype;
    config.matmul_precision = trainer::MatmulPrecision::kHighest;  // as the measured GEMMs
    const auto peak = trainer::data_sheet_peak(device, config);
    return peak ? peak->tflops : 0;
  };
  return {.bf16_tflops = peak_of(trainer::ComputeType::kBfloat16),
          .fp32_tflops = peak_of(trainer::ComputeType::kFloat32)};
}

void fill_random(trainer::Backend& device, const trainer::Tensor& x) {
  constexpr size_t kValues = 1 << 20;  // the values repeat after these
  static const std::vector<float> fp32 = [] {
    std::vector<float> numbers;
    const Philox philox{.key = 1, .stream = 1};
    for (size_t i = 0; i < kValues; ++i) numbers.push_back(2 * uniform_from_bits(philox(i)[0]) - 1);
    return numbers;
  }();
  static const std::vector<trainer::Bf16> bf16 = [] {
    std::vector<trainer::Bf16> numbers;
    for (const float number : fp32) numbers.push_back(trainer::Bf16::round(number));
    return numbers;
  }();
  const void* const from =
      x.dtype == trainer::DType::kBf16 ? static_cast<const void*>(bf16.data()) : fp32.data();
  const size_t all = x.bytes(), each = kValues * trainer::dtype_bytes(x.dtype);
  for (size_t at = 0; at < all; at += each)
    device.memory().upload(from, static_cast<char*>(x.data) + at, std::min(each, all - at));
}

double seconds_of(const std::function<void()>& call, const std::function<void()>& wait) {
  constexpr int kIterations = 5;
  constexpr double kIterationSeconds = 0.1, kSecondsMax = 2;
  constexpr int kCallsMax = 1000;
  call();  // chooses algorithms, and loads kernels
  wait();
  const auto time_calls = [&](int calls) {
    const Instant began = monotonic_now();
    for (int i = 0; i < calls; ++i) call();
    wait();
    return to_seconds(monotonic_now() - began) / calls;
  };
  const double once = time_calls(1);
  const int calls = std::clamp(static_cast<int>(kIterationSeconds / once), 1, kCallsMax);
  double best = once, spent = once;
  for (int i = 0; i < kIterations && spent < kSecondsMax; ++i) {
    const double each = time_calls(calls);
    best = std::min(best, each);
    spent += each * calls;
  }
  return best;
}

}  // namespace muster::bench

int main(int argc, char** argv) {
  return muster::bench::run(std::vector<std::string_view>(argv + 1, argv + argc));
}
