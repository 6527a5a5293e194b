#include "trainer_core/forecast/step_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>
#include <string_view>

#include <absl/strings/str_cat.h>

namespace muster::trainer {
namespace {

constexpr double kGiga = 1e9;
constexpr double kTera = 1e12;
constexpr double kMicro = 1e-6;

// A tile of a GEMM's result that one multiprocessor computes, and its share of the peak.
struct GemmTile {
  double rows, columns, share;
};
constexpr std::array<GemmTile, 5> kTiles = {
    {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.9}, {128, 64, 0.7}, {64, 64, 0.45}}};

// The bandwidth that a kernel reaches, relative to the fastest kernels. Kernels with sums over
// rows or with gathers reach less. By ncu on an H200 (docs/internals/cuda-step.md and
// bench/results/gpu); kernels that are not listed have 1.
struct KernelShare {
  std::string_view name;
  double share;
};
constexpr std::array<KernelShare, 11> kKernelShares = {{
    {"norm", 0.46},
    {"add_norm", 0.46},
    {"norm_backward", 0.46},
    {"bias_backward", 0.55},
    {"add_bias", 0.8},
    {"rope", 0.7},
    {"cross_entropy", 0.7},
    {"cross_entropy_backward", 0.7},
    {"sum_of_squares", 0.5},
    {"embedding", 0.34},
    {"embedding_backward", 0.2},
}};

// Returns whether the op table has an operation of this name, or the recorder adds it.
bool is_operation(std::string_view name) {
  static const std::set<std::string_view> kNames = {
      "convert",
#define MUSTER_OP(result, name, parameters, arguments) #name,
#include "trainer_core/ops/op_table.inc"
  };
  return kNames.contains(name);
}

// Kernels that round operands of GEMMs to 8 bits, or scale the results.
constexpr std::array<std::string_view, 4> kRoundingKernels = {"abs_max", "current_scale",
                                                              "quantize", "dequantize"};
// Kernels of the residual stream, whose rows tensor ranks share with sequence parallelism.
constexpr std::array<std::string_view, 3> kStreamKernels = {"norm", "add_norm", "norm_backward"};

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

double tensor_ranks(const StepTrace& trace) {
  const auto group = std::ranges::find(trace.groups, "tensor", &CollectiveGroup::name);
  return group == trace.groups.end() ? 1 : group->ranks;
}

}  // namespace

double filled_share(const GemmShape& gemm, double multiprocessors) {
  if (multiprocessors <= 0) return 1;
  double best = 0;
  for (const GemmTile& tile : kTiles) {
    const double rows = std::ceil(static_cast<double>(gemm.m) / tile.rows);
    const double columns = std::ceil(static_cast<double>(gemm.n) / tile.columns);
    const double tiles = rows * columns * static_cast<double>(gemm.batches);
    const double waves = std::ceil(tiles / multiprocessors);
    const double used = static_cast<double>(gemm.m) * static_cast<double>(gemm.n) *
                        static_cast<double>(gemm.batches) / (tile.rows * tile.columns);
    best = std::max(best, tile.share * used / (waves * multiprocessors));
  }
  return best;
}

double head_share(double head_dim) { return std::min(1.0, 2 * head_dim / (head_dim + 128)); }

const std::vector<StepConstant>& step_constants() {
  using C = StepConstants;
  static const std::vector<StepConstant> kAll = {
      {"gemm_fraction", &C::gemm_fraction, 0.01, 1},
      {"gemm_fp8_fraction", &C::gemm_fp8_fraction, 0.01, 1},
      {"gemm_depth", &C::gemm_depth, 0, 10'000},
      {"attention_forward_fraction", &C::attention_forward_fraction, 0.01, 1},
      {"attention_backward_fraction", &C::attention_backward_fraction, 0.01, 1},
      {"attention_length", &C::attention_length, 0, 10'000},
      {"attention_fused", &C::attention_fused, 0, 1},
      {"memory_fraction", &C::memory_fraction, 0.01, 1},
      {"memory_passes", &C::memory_passes, 0, 10},
      {"quantize_passes", &C::quantize_passes, 0, 10},
      {"kernel_us", &C::kernel_us, 0, 1000},
      {"step_ms", &C::step_ms, 0, 100'000},
      {"node_link_fraction", &C::node_link_fraction, 0.01, 1},
      {"network_link_fraction", &C::network_link_fraction, 0.01, 1},
      {"overlap_slowdown", &C::overlap_slowdown, 0, 1},
      {"inline_overlap", &C::inline_overlap, 0, 1},
      {"host_copy_overlap", &C::host_copy_overlap, 0, 1},
      {"reduction_overlap", &C::reduction_overlap, 0, 1},
      {"sequence_parallel", &C::sequence_parallel, 0, 1},
      {"whole_recomputation", &C::whole_recomputation, 0, 1},
      {"one_queue", &C::one_queue, 0, 1},
      {"straggling", &C::straggling, 0, 1},
  };
  return kAll;
}

ReductionCost ring_reduction(double ranks) { return {2 * (ranks - 1) / ranks, 2 * (ranks - 1)}; }

ReductionCost tree_reduction(double ranks) {
  return {2.5, 2 * std::ceil(std::log2(std::max(ranks, 2.0)))};
}

double StepCost::peak_flops(const GemmShape& gemm) const {
  if (gemm.fp32) return device_.fp32_tflops * kTera;
  return device_.gemm_tflops(gemm.quantized) * kTera;
}

double StepCost::gemm(const TracedWork& work) const {
  const GemmShape& gemm = work.gemm;
  const double fraction =
      device_.uses_8_bits(gemm.quantized) ? constants_.gemm_fp8_fraction : constants_.gemm_fraction;
  const auto depth = static_cast<double>(gemm.k);
  const double share = fraction * depth / (depth + constants_.gemm_depth) *
                       filled_share(gemm, device_.multiprocessors);
  return std::max(work.flops / (peak_flops(gemm) * share), memory(work.bytes));
}

double StepCost::attention(const AttentionWork& work, double flops) const {
  const auto keys = static_cast<double>(work.keys);
  const double peak = device_.tflops_of(work) * kTera;
  if (constants_.attention_fused < 0.5) {
    // All scores are computed, in fp32, and each of the passes over them reads and writes them.
    const double scores = static_cast<double>(work.batch * work.heads * work.queries) * keys;
    const double passes = work.backward ? 9 : 6;
    return 2 * flops / (peak * constants_.gemm_fraction) + memory(scores * 2 * passes);
  }
  const double fraction = work.backward ? constants_.attention_backward_fraction
                                        : constants_.attention_forward_fraction;
  return flops / (peak * fraction * keys / (keys + constants_.attention_length) *
                  head_share(static_cast<double>(work.head_dim)));
}

double StepCost::kernel_share(std::string_view name) const {
  const auto own = constants_.kernel_shares.find(name);
  if (own != constants_.kernel_shares.end()) return own->second;
  const auto* const known = std::ranges::find(kKernelShares, name, &KernelShare::name);
  return known == kKernelShares.end() ? 1 : known->share;
}

double StepCost::memory(double bytes) const {
  return bytes / (device_.memory_gb_s * kGiga * constants_.memory_fraction);
}

// Returns the bytes that a kernel moves, relative to those of Muster's kernel.
double StepCost::passes(const TracedWork& work, const StepTrace& trace) const {
  if (work.phase == StepPhase::kUpdate) return 1;
  if (contains(kRoundingKernels, work.name)) return constants_.quantize_passes;
  const bool is_copied = constants_.sequence_parallel < 0.5 && contains(kStreamKernels, work.name);
  return constants_.memory_passes * (is_copied ? tensor_ranks(trace) : 1);
}

// Ring algorithms move the data at the bandwidth of the slowest link of the ring. All groups of a
// node run at once, so each has the share of the node's network links that belongs to its ranks.
double StepCost::collective(const TracedWork& work, const CollectiveGroup& group) const {
  const double ranks = group.ranks, nodes = std::max(group.nodes, 1);
  const double node_link = device_.node_gb_s * kGiga * constants_.node_link_fraction;
  const double per_node = std::ceil(ranks / nodes);
  const double network = device_.network_gb_s * kGiga * constants_.network_link_fraction;
  const double link =
      nodes > 1 ? std::min(per_node > 1 ? node_link : network * per_node, network * per_node)
                : node_link;
  const double latency =
      (nodes > 1 ? device_.network_latency_us : device_.node_latency_us) * kMicro;
  const double hops = nodes > 1 ? (nodes - 1) * device_.network_latency_us * kMicro +
                                      (ranks - nodes) * device_.node_latency_us * kMicro
                                : (ranks - 1) * device_.node_latency_us * kMicro;
  const ReductionCost ring = ring_reduction(ranks), tree = tree_reduction(ranks);
  const double tree_hops = tree.hops * latency;
  const double others = (ranks - 1) / ranks;
  switch (work.collective) {
    case CollectiveKind::kAllReduce:
      return std::min(ring.transfers * work.bytes / link + 2 * hops,
                      tree.transfers * work.bytes / link + tree_hops);
    case CollectiveKind::kAllGather:
      return (ranks - 1) * work.bytes / link + std::min(hops, 4 * tree_hops);
    case CollectiveKind::kReduceScatter:
      return others * work.bytes / link + std::min(hops, 4 * tree_hops);
    case CollectiveKind::kAllToAll: {
      // Data to ranks of other nodes leaves by the rank's own share of the network.
      const double away = nodes > 1 ? (ranks - per_node) / ranks : 0;
      return std::max(work.bytes * (others - away) / node_link, work.bytes * away / network) +
             2 * latency;
    }
    case CollectiveKind::kBroadcast:
      return work.bytes / link + tree_hops;
    case CollectiveKind::kSend:
    case CollectiveKind::kSendRecv:
      return work.bytes / (nodes > 1 ? network : node_link) + latency;
    case CollectiveKind::kBarrier:
      return tree_hops;
    case CollectiveKind::kRecv:  // the sender's duration counts
    case CollectiveKind::kNone:
      return 0;
  }
  return 0;
}

double StepCost::seconds(const TracedWork& work, const StepTrace& trace) const {
  switch (work.kind) {
    case WorkKind::kGemm:
      return gemm(work);
    case WorkKind::kAttention:
      return attention(work.attention, work.flops);
    case WorkKind::kMemory:
      return memory(work.bytes * passes(work, trace) / kernel_share(work.name));
    case WorkKind::kHostCopy:
      return work.bytes / (device_.host_gb_s * kGiga * constants_.node_link_fraction) *
             (1 - constants_.host_copy_overlap);
    case WorkKind::kCollective:
      return collective(work, trace.groups[static_cast<size_t>(work.group)]);
  }
  return 0;
}

double StepCost::ideal_seconds(const TracedWork& work) const {
  if (work.kind == WorkKind::kGemm) return work.flops / peak_flops(work.gemm);
  if (work.kind == WorkKind::kAttention)
    return work.flops / (device_.tflops_of(work.attention) * kTera);
  return 0;
}

absl::StatusOr<StepMachine> step_machine_from_json(const nlohmann::json& json) {
  if (!json.is_object()) return absl::InvalidArgumentError("a machine is not a JSON object");
  StepMachine machine;
  const auto read = [&](const char* part, const char* name, double min, double max, bool required,
                        double& out) {
    const auto& object = json.contains(part) ? json[part] : nlohmann::json::object();
    if (!object.is_object() || (!object.contains(name) && !required)) return absl::OkStatus();
    const auto value = object.contains(name) ? object[name] : nlohmann::json();
    if (value.is_number()) out = value.get<double>();
    if (value.is_number() && out >= min && out <= max) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(part, ".", name, "=", value.dump(),
                                                   ": expected a number from ", min, " to ", max));
  };
  struct Field {
    const char* name;
    double DeviceModel::*field;
    double min;
  };
  using D = DeviceModel;
  constexpr double kLarge = 1e9, kSmall = 1e-3;
  for (const Field& field : {Field{"bf16_tflops", &D::bf16_tflops, kSmall},
                             {"fp8_tflops", &D::fp8_tflops, 0},
                             {"fp32_tflops", &D::fp32_tflops, kSmall},
                             {"memory_gb_s", &D::memory_gb_s, kSmall},
                             {"multiprocessors", &D::multiprocessors, 0},
                             {"node_gb_s", &D::node_gb_s, kSmall},
                             {"node_latency_us", &D::node_latency_us, 0},
                             {"network_gb_s", &D::network_gb_s, kSmall},
                             {"network_latency_us", &D::network_latency_us, 0},
                             {"host_gb_s", &D::host_gb_s, kSmall},
                             {"devices_per_node", &D::devices_per_node, 1}}) {
    const absl::Status status =
        read("device", field.name, field.min, kLarge, true, machine.device.*field.field);
    if (!status.ok()) return status;
  }
  const nlohmann::json constants = json.value("constants", nlohmann::json::object());
  if (!constants.is_object()) return absl::InvalidArgumentError("constants is not a JSON object");
  for (const auto& [name, value] : constants.items()) {
    if (name.starts_with(kKernelShareKey)) {
      const std::string operation = name.substr(kKernelShareKey.size());
      if (!is_operation(operation))
        return absl::InvalidArgumentError(
            absl::StrCat("constants.", name, ": there is no operation ", operation));
      const absl::Status status = read("constants", name.c_str(), kKernelShareMin, kKernelShareMax,
                                       true, machine.constants.kernel_shares[operation]);
      if (!status.ok()) return status;
      continue;
    }
    if (std::ranges::none_of(step_constants(), [&, &key = name](const StepConstant& constant) {
          return constant.name == key;
        }))
      return absl::InvalidArgumentError(absl::StrCat("constants.", name, ": unknown constant"));
  }
  for (const StepConstant& constant : step_constants()) {
    const absl::Status status = read("constants", constant.name, constant.min, constant.max, false,
                                     machine.constants.*constant.field);
    if (!status.ok()) return status;
  }
  return machine;
}

}  // namespace muster::trainer
