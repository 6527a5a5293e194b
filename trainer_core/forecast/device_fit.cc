#include "trainer_core/forecast/device_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

namespace muster::trainer {
namespace {

constexpr double kTeraFlops = 1e12;
constexpr double kGigaBytes = 1e9;
// A GEMM whose bytes take this share of its time does not show the rate of the arithmetic.
constexpr double kBoundByMemory = 0.5;
// The limits of step_constants() for a share.
constexpr double kShareMin = 0.01;

// A duration as a linear function of two known values: seconds = a * x + b * y.
struct LinearSample {
  double x = 0, y = 0;
  double seconds = 0;
  double weight = 1;
};

struct LinearFit {
  double a = 0, b = 0;
};

// Returns the a > 0 and b >= 0 with the least sum of weighted squares of the relative errors.
// nullopt: the samples do not determine them.
std::optional<LinearFit> fit_line(const std::vector<LinearSample>& samples) {
  double xx = 0, xy = 0, yy = 0, x1 = 0, y1 = 0;
  for (const LinearSample& sample : samples) {
    if (!(sample.seconds > 0)) continue;
    const double x = sample.x / sample.seconds, y = sample.y / sample.seconds;
    xx += sample.weight * x * x;
    xy += sample.weight * x * y;
    yy += sample.weight * y * y;
    x1 += sample.weight * x;
    y1 += sample.weight * y;
  }
  if (!(xx > 0)) return std::nullopt;
  const LinearFit flat{x1 / xx, 0};
  const double determinant = xx * yy - xy * xy;
  constexpr double kSingular = 1e-9;
  if (!(determinant > kSingular * xx * yy)) return flat;
  const LinearFit both{(x1 * yy - y1 * xy) / determinant, (xx * y1 - xy * x1) / determinant};
  return both.a > 0 && both.b >= 0 ? both : flat;
}

double share_of(double value) { return std::clamp(value, kShareMin, 1.0); }

// seconds = flops / peak * (1 / fraction + depth / fraction / K)
void fit_gemms(const DeviceSamples& samples, StepMachine& machine) {
  std::vector<LinearSample> line;
  for (const MeasuredWork& one : samples.works) {
    const TracedWork& work = one.work;
    if (work.kind != WorkKind::kGemm || !(work.flops > 0) || work.gemm.quantized) continue;
    if (work.bytes / (samples.memory_gb_s * kGigaBytes) > kBoundByMemory * one.seconds) continue;
    const double peak = (work.gemm.fp32 ? samples.fp32_tflops : samples.bf16_tflops) * kTeraFlops;
    const double ideal = work.flops / (peak * filled_share(work.gemm, samples.multiprocessors));
    line.push_back({ideal, ideal / static_cast<double>(work.gemm.k), one.seconds, one.seconds});
  }
  const auto fit = fit_line(line);
  if (!fit) return;
  // The curve may reach more than the GEMM that was measured as the peak.
  const double above = std::max(1.0, 1 / fit->a);
  machine.device.bf16_tflops *= above;
  machine.device.fp32_tflops *= above;
  machine.constants.gemm_fraction = share_of(1 / (fit->a * above));
  machine.constants.gemm_depth = std::clamp(fit->b / fit->a, 0.0, 10'000.0);
}

std::vector<LinearSample> attention_samples(const DeviceSamples& samples, const DeviceModel& device,
                                            bool backward) {
  std::vector<LinearSample> line;
  for (const MeasuredWork& one : samples.works) {
    const TracedWork& work = one.work;
    if (work.kind != WorkKind::kAttention || work.attention.backward != backward) continue;
    const double ideal = work.flops / (device.tflops_of(work.attention) * kTeraFlops *
                                       head_share(static_cast<double>(work.attention.head_dim)));
    line.push_back(
        {ideal, ideal / static_cast<double>(work.attention.keys), one.seconds, one.seconds});
  }
  return line;
}

// seconds = flops / peak * (1 / fraction + length / fraction / keys); both passes have one length.
void fit_attention(const DeviceSamples& samples, StepMachine& machine) {
  std::vector<LinearSample> passes[2];
  double length = 0, seconds = 0;
  for (const bool backward : {false, true}) {
    passes[backward ? 1 : 0] = attention_samples(samples, machine.device, backward);
    const auto fit = fit_line(passes[backward ? 1 : 0]);
    if (!fit) return;
    double of_pass = 0;
    for (const LinearSample& sample : passes[backward ? 1 : 0]) of_pass += sample.seconds;
    length += of_pass * fit->b / fit->a;
    seconds += of_pass;
  }
  length = std::clamp(length / seconds, 0.0, 10'000.0);
  machine.constants.attention_length = length;
  double* const fractions[2] = {&machine.constants.attention_forward_fraction,
                                &machine.constants.attention_backward_fraction};
  for (size_t pass = 0; pass < 2; ++pass) {
    for (LinearSample& sample : passes[pass]) {
      sample.x += length * sample.y;
      sample.y = 0;
    }
    *fractions[pass] = share_of(1 / fit_line(passes[pass])->a);
  }
}

// The bandwidth of each operation, relative to the copy's. Operations on tensors that fit into a
// CPU's caches reach more than 1.
void fit_kernels(const DeviceSamples& samples, StepMachine& machine) {
  struct Sums {
    double bytes = 0, seconds = 0;
  };
  std::map<std::string, Sums> sums;
  for (const MeasuredWork& one : samples.works) {
    if (one.work.kind != WorkKind::kMemory) continue;
    Sums& sum = sums[one.work.name];
    sum.bytes += one.work.bytes;
    sum.seconds += one.seconds;
  }
  for (const auto& [name, sum] : sums) {
    if (!(sum.bytes > 0) || !(sum.seconds > 0)) continue;
    machine.constants.kernel_shares[name] =
        std::clamp(sum.bytes / sum.seconds / (samples.memory_gb_s * kGigaBytes), kKernelShareMin,
                   kKernelShareMax);
  }
}

// The forecast takes the faster of two algorithms, so the smallest reductions are fitted to a tree
// and the others to a ring. The division whose forecast has the least error applies.
void fit_links(const DeviceSamples& samples, StepMachine& machine) {
  if (samples.ranks < 2) return;
  std::vector<MeasuredReduction> all = samples.reductions;
  std::ranges::sort(all, {}, &MeasuredReduction::bytes);
  const ReductionCost ring = ring_reduction(samples.ranks), tree = tree_reduction(samples.ranks);
  const auto seconds_of = [](const ReductionCost& cost, double bytes, const LinearFit& fit) {
    return cost.transfers * bytes * fit.a + cost.hops * fit.b;
  };
  double least = std::numeric_limits<double>::infinity();
  for (size_t of_tree = 0; of_tree <= all.size(); ++of_tree) {
    std::vector<LinearSample> line;
    for (size_t i = 0; i < all.size(); ++i) {
      const ReductionCost& cost = i < of_tree ? tree : ring;
      line.push_back({cost.transfers * all[i].bytes, cost.hops, all[i].seconds, 1});
    }
    const auto fit = fit_line(line);
    if (!fit) return;
    double error = 0;
    for (const MeasuredReduction& one : all) {
      if (!(one.seconds > 0)) continue;
      const double forecast =
          std::min(seconds_of(ring, one.bytes, *fit), seconds_of(tree, one.bytes, *fit));
      error += std::pow(forecast / one.seconds - 1, 2);
    }
    if (error >= least) continue;
    least = error;
    machine.device.node_gb_s = 1 / fit->a / kGigaBytes;
    machine.device.node_latency_us = fit->b * 1e6;
  }
}

}  // namespace

StepMachine fit_device(const DeviceSamples& samples) {
  StepMachine machine{.device = {.bf16_tflops = samples.bf16_tflops,
                                 .fp32_tflops = samples.fp32_tflops,
                                 .memory_gb_s = samples.memory_gb_s,
                                 .multiprocessors = samples.multiprocessors,
                                 .host_gb_s = samples.host_gb_s},
                      .constants = {.memory_fraction = 1,
                                    .kernel_us = std::min(samples.kernel_seconds * 1e6, 1000.0),
                                    .node_link_fraction = 1}};
  fit_gemms(samples, machine);
  fit_attention(samples, machine);
  fit_kernels(samples, machine);
  fit_links(samples, machine);
  return machine;
}

}  // namespace muster::trainer
