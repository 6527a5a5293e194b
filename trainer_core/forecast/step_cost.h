// The duration of each piece of a step's work (step_trace.h) on a device: GEMMs and attention by
// efficiency curves over their shape, other kernels by the bytes that they move, collectives by
// their algorithm, size and links. Pure arithmetic.
//
// A device is described by its data sheet and its links (configs/topologies). How much of these a
// program attains is a small set of constants, calibrated by measured steps (configs/calibration).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/forecast/step_trace.h"

namespace muster::trainer {

// A device and its links, by their data sheets. Bandwidths are per device and direction, in GB/s.
struct DeviceModel {
  double bf16_tflops = 0;
  double fp8_tflops = 0;  // 0: the device has no 8-bit GEMMs
  double fp32_tflops = 0;
  double memory_gb_s = 0;
  // Streaming multiprocessors that share the tiles of a GEMM; 0: tiles are not modelled.
  double multiprocessors = 0;
  double node_gb_s = 0;  // to devices of the same node (TPUs: of the same slice)
  double node_latency_us = 0;
  double network_gb_s = 0;  // to other nodes
  double network_latency_us = 0;
  double host_gb_s = 0;         // to host memory
  double devices_per_node = 1;  // that share the node's links to the network

  // Returns whether GEMMs are in 8 bits. `quantized`: their operands were rounded to 8 bits.
  bool uses_8_bits(bool quantized) const { return quantized && fp8_tflops > 0; }
  // Returns the peak of GEMMs in 16 or 8 bits.
  double gemm_tflops(bool quantized) const {
    return uses_8_bits(quantized) ? fp8_tflops : bf16_tflops;
  }
  // Returns the peak for the type of the activations of attention.
  double tflops_of(const AttentionWork& work) const {
    return work.fp32 ? fp32_tflops : bf16_tflops;
  }
};

// The range of StepConstants::kernel_shares.
constexpr double kKernelShareMin = 1e-4;
constexpr double kKernelShareMax = 1000;
// A key of a kernel's share, in JSON and in files, is this and the name of the operation:
// "kernel_share_norm".
inline constexpr std::string_view kKernelShareKey = "kernel_share_";

// The share of a device that a program attains.
struct StepConstants {
  // The share of the peak that GEMMs of large matrices attain, in bf16 (and fp32) and in 8 bits.
  double gemm_fraction = 0.7;
  double gemm_fp8_fraction = 0.55;
  // The inner dimension at which a GEMM attains half of that: K / (K + gemm_depth).
  double gemm_depth = 100;
  // The share of the peak that attention attains on long sequences with heads of 128 elements.
  double attention_forward_fraction = 0.5;
  double attention_backward_fraction = 0.35;
  // The number of keys at which attention attains half of that.
  double attention_length = 300;
  // Whether one kernel computes attention (1), or separate ones write the scores to memory (0).
  double attention_fused = 1;
  // The share of the memory bandwidth that kernels attain.
  double memory_fraction = 0.7;
  // The bytes that kernels of the forward and backward pass move, relative to those of Muster's
  // kernels: less with more fusion.
  double memory_passes = 1;
  // The bytes that rounding to 8 bits moves, relative to those of Muster's kernels: less in
  // programs whose GEMMs apply the scales, whose scales are those of earlier steps, or that fuse
  // the rounding with the kernel before it.
  double quantize_passes = 1;
  // The time from the end of a kernel to the start of the next one, in µs.
  double kernel_us = 1;
  // The time of a step in which the device computes nothing, in ms: data, optimizer on the host,
  // logging.
  double step_ms = 0;
  // The share of the links' bandwidth that collectives attain.
  double node_link_fraction = 0.75;
  double network_link_fraction = 0.75;
  // The share of communication time by which it slows down the computation that runs meanwhile.
  double overlap_slowdown = 0.1;
  // The share of the collectives within layers (tensor parallelism) that is hidden.
  double inline_overlap = 0;
  // The share of copies to and from host memory that is hidden.
  double host_copy_overlap = 0;
  // The share of the reductions of gradients over the data axis that is hidden although no later
  // layer's backward pass runs meanwhile: other programs spread them over more of a step.
  double reduction_overlap = 0;
  // 1: tensor ranks share the rows of norms (sequence parallelism), as in Muster; 0: each tensor
  // rank computes all rows.
  double sequence_parallel = 1;
  // 1: if GEMMs are recomputed, the recomputation is a layer's complete forward pass; 0: it ends
  // with what the backward pass reads, and the last layer is not recomputed, as in Muster.
  double whole_recomputation = 0;
  // 1: one queue runs the collectives of parameters and gradients of all groups, as in Muster; 0:
  // each group has its own.
  double one_queue = 1;
  // The relative increase of a step's time per doubling of the nodes: ranks that are late.
  double straggling = 0;
  // The bandwidth that an operation attains, relative to memory_fraction of the device's, by its
  // name in the op table. For operations that are not listed, those of an H200 apply.
  std::map<std::string, double, std::less<>> kernel_shares = {};
};

// A named constant of StepConstants, with its allowed range.
struct StepConstant {
  const char* name;
  double StepConstants::*field;
  double min, max;
};
const std::vector<StepConstant>& step_constants();

// Returns the share of the peak that remains if the tiles of a GEMM's result do not fill the
// device: the last wave of tiles leaves multiprocessors idle, and tiles at the edges are not full.
// Returns 1 without multiprocessors.
double filled_share(const GemmShape& gemm, double multiprocessors);
// Returns the share of the rate of attention with heads of 128 elements. Smaller heads leave more
// time to the softmax.
double head_share(double head_dim);

// An all-reduce by one algorithm takes transfers * bytes / bandwidth + hops * latency.
struct ReductionCost {
  double transfers = 0, hops = 0;
};
// An all-reduce takes the shorter time of both. A tree has fewer hops, but reaches less of the
// bandwidth.
ReductionCost ring_reduction(double ranks);
ReductionCost tree_reduction(double ranks);

// Computes durations in seconds.
class StepCost {
 public:
  StepCost(const DeviceModel& device, const StepConstants& constants)
      : device_(device), constants_(constants) {}

  // Returns the duration of a work that runs alone, without the gap after a kernel.
  double seconds(const TracedWork& work, const StepTrace& trace) const;
  // Returns the part of `seconds` that the flops of the work would need at the device's peak.
  double ideal_seconds(const TracedWork& work) const;
  // Returns the time after a kernel until the next one.
  double gap_seconds() const { return constants_.kernel_us * 1e-6; }

  const DeviceModel& device() const { return device_; }
  const StepConstants& constants() const { return constants_; }

 private:
  double peak_flops(const GemmShape& gemm) const;
  double gemm(const TracedWork& work) const;
  double attention(const AttentionWork& work, double flops) const;
  double memory(double bytes) const;
  double passes(const TracedWork& work, const StepTrace& trace) const;
  double kernel_share(std::string_view name) const;
  double collective(const TracedWork& work, const CollectiveGroup& group) const;

  DeviceModel device_;
  StepConstants constants_;
};

// A machine: {"device": {fields of DeviceModel}, "constants": {fields of StepConstants}}. Missing
// constants have their defaults. Returns InvalidArgument with the field, its value and its range.
struct StepMachine {
  DeviceModel device;
  StepConstants constants;
};
absl::StatusOr<StepMachine> step_machine_from_json(const nlohmann::json& json);

}  // namespace muster::trainer
