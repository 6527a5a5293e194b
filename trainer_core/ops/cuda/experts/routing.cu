// Assigns tokens to experts. A warp chooses the experts of a token. A block assigns an expert's
// rows by going through all choices in their order of priority, so that the result does not depend
// on the order of threads.
#include "trainer_core/ops/cuda/device/device.cuh"
#include "trainer_core/ops/cuda/experts/experts.h"

namespace muster::trainer::cuda {
namespace {

// Keeps the gates of a token whose choices are all improbable finite, as GShard does.
constexpr float kGateFloor = 1e-9F;
constexpr int32_t kDropped = -1;
// Tokens per block of the backward pass, which sums its group's weights once.
constexpr int64_t kTokensPerBlock = 64;

// The warp's index in the grid, and the number of warps.
__device__ inline int64_t warp_index() { return global_index() / kWarp; }
__device__ inline int64_t warp_count() { return global_count() / kWarp; }
__device__ inline int lane_index() { return static_cast<int>(threadIdx.x) % kWarp; }

struct Best {
  float value;
  int32_t expert;
};
// Returns the larger value; of equal values, that of the lower expert. -1 is no expert.
__device__ inline Best better(const Best& a, const Best& b) {
  if (b.expert < 0) return a;
  if (a.expert < 0) return b;
  if (a.value != b.value) return a.value > b.value ? a : b;
  return a.expert < b.expert ? a : b;
}

// The sum that the chosen experts' probabilities are divided by.
__device__ inline float gate_divisor(const RoutingArrays& r, int64_t token) {
  float sum = kGateFloor;
  for (int64_t j = 0; j < r.per_token; ++j)
    sum += r.probs[token * r.experts_count + r.experts[token * r.per_token + j]];
  return sum;
}

__device__ inline void softmax(int64_t n, float* x) {
  const int lane = lane_index();
  float peak = kLowest;
  for (int64_t e = lane; e < n; e += kWarp) peak = fmaxf(peak, x[e]);
  peak = warp_max(peak);
  float sum = 0;
  for (int64_t e = lane; e < n; e += kWarp) {
    x[e] = expf(x[e] - peak);
    sum += x[e];
  }
  sum = warp_sum(sum);
  for (int64_t e = lane; e < n; e += kWarp) x[e] /= sum;
}

__global__ void choose_kernel(RoutingArrays r) {
  const int lane = lane_index();
  for (int64_t token = warp_index(); token < r.tokens; token += warp_count()) {
    float* const probs = r.probs + token * r.experts_count;
    int32_t* const chosen = r.experts + token * r.per_token;
    softmax(r.experts_count, probs);
    for (int64_t j = 0; j < r.per_token; ++j) {
      Best best{0, -1};
      for (int64_t e = lane; e < r.experts_count; e += kWarp) {
        bool taken = false;
        for (int64_t i = 0; i < j; ++i) taken = taken || chosen[i] == e;
        if (!taken) best = better(best, {probs[e], static_cast<int32_t>(e)});
      }
      for (int step = kWarp / 2; step > 0; step /= 2) {
        const Best other{__shfl_xor_sync(kAllLanes, best.value, step),
                         __shfl_xor_sync(kAllLanes, best.expert, step)};
        best = better(best, other);
      }
      // NaN is preferred to no expert and ranks below all other values: an expert is chosen in any
      // case.
      if (lane == 0) chosen[j] = best.expert;
      __syncwarp();
    }
    const float divisor = gate_divisor(r, token);
    for (int64_t j = lane; j < r.per_token; j += kWarp)
      r.gates[token * r.per_token + j] = probs[chosen[j]] / divisor;
  }
}

// The number of threads with `flag`: before this one in the block, and in all.
struct Scan {
  int64_t before, all;
};
__device__ inline Scan scan(bool flag) {
  __shared__ int counts[kWarp];
  const int lane = lane_index(), warp = static_cast<int>(threadIdx.x) / kWarp;
  const unsigned bits = __ballot_sync(kAllLanes, flag);
  __syncthreads();  // other threads may still read the last counts
  if (lane == 0) counts[warp] = __popc(bits);
  __syncthreads();
  Scan result{__popc(bits & ((1U << lane) - 1)), 0};
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarp; ++i) {
    if (i < warp) result.before += counts[i];
    result.all += counts[i];
  }
  return result;
}

// Block e: numbers the rows of expert e from 0, and stores their count in offsets[e + 1].
__global__ void slots_kernel(RoutingArrays r) {
  const int32_t expert = static_cast<int32_t>(blockIdx.x);
  const int64_t n = r.group_tokens(), k = r.per_token;
  int64_t rows = 0;
  for (int64_t group = 0; group < r.groups; ++group) {
    int64_t taken = 0;
    for (int64_t first = 0; first < n * k; first += blockDim.x) {
      const int64_t at = first + threadIdx.x;
      const int64_t j = r.first_choices_first ? at / n : at % k;
      const int64_t i = r.first_choices_first ? at % n : at / k;
      const int64_t row = at < n * k ? r.row(group * n + i) : 0;
      const bool match = at < n * k && r.experts[row * k + j] == expert;
      const Scan matches = scan(match);
      const bool gets = match && taken + matches.before < r.capacity && r.is_own(row);
      const Scan given = scan(gets);
      if (match) r.slots[row * k + j] = gets ? static_cast<int32_t>(rows + given.before) : kDropped;
      taken += matches.all;
      rows += given.all;
    }
  }
  if (threadIdx.x == 0) r.offsets[expert + 1] = static_cast<int32_t>(rows);
}

// A single thread, because experts are few.
__global__ void offsets_kernel(RoutingArrays r) {
  r.offsets[0] = 0;
  for (int64_t e = 0; e < r.experts_count; ++e) r.offsets[e + 1] += r.offsets[e];
}

__global__ void shift_slots_kernel(RoutingArrays r) {
  for (int64_t i = global_index(); i < r.tokens * r.per_token; i += global_count())
    if (r.slots[i] != kDropped) r.slots[i] += r.offsets[r.experts[i]];
}

// grid (E, G)
__global__ void density_kernel(RoutingArrays r) {
  const int32_t expert = static_cast<int32_t>(blockIdx.x);
  const int64_t group = blockIdx.y, n = r.group_tokens();
  const int64_t counted = r.first_choices_first ? 1 : r.per_token;
  int64_t chosen = 0;
  for (int64_t i = threadIdx.x; i < n * counted; i += blockDim.x) {
    const int64_t row = r.row(group * n + i / counted);
    chosen += r.experts[row * r.per_token + i % counted] == expert ? 1 : 0;
  }
  const double all = static_cast<double>(block_sum(static_cast<double>(chosen)));
  if (threadIdx.x == 0)
    r.density[group * r.experts_count + expert] = static_cast<float>(all / static_cast<double>(n));
}

// E W_g / (T / G) of a group: the contribution of one token's probability to the balance loss per
// unit of density. Requires: all threads of the block call it; all get the result.
__device__ inline float balance_factor(const RoutingArrays& r, int64_t group) {
  if (r.balance_weight == 0) return 0;
  const int64_t n = r.group_tokens();
  double weight = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
    weight += static_cast<double>(r.weights[r.row(group * n + i)]);
  return static_cast<float>(r.balance_weight * block_sum(weight) *
                            static_cast<double>(r.experts_count) / static_cast<double>(n));
}

// grid (G)
__global__ void balance_kernel(RoutingArrays r) {
  const int64_t group = blockIdx.x, n = r.group_tokens(), count = r.experts_count;
  double sum = 0;
  for (int64_t at = threadIdx.x; at < n * count; at += blockDim.x) {
    const int64_t row = r.row(group * n + at / count), e = at % count;
    sum += static_cast<double>(r.density[group * count + e]) *
           static_cast<double>(r.probs[row * count + e]);
  }
  sum = block_sum(sum);
  const float factor = balance_factor(r, group);
  if (threadIdx.x == 0) r.balance[group] = static_cast<float>(static_cast<double>(factor) * sum);
}

// grid (parts of a group, G): each warp has a token.
__global__ void backward_kernel(RoutingArrays r, const float* dgates) {
  const int64_t group = blockIdx.y, n = r.group_tokens(), count = r.experts_count;
  const int64_t k = r.per_token;
  const int lane = lane_index();
  const float factor = balance_factor(r, group);
  const int64_t first = blockIdx.x * kTokensPerBlock;
  for (int64_t i = first + threadIdx.x / kWarp; i < n && i < first + kTokensPerBlock;
       i += blockDim.x / kWarp) {
    const int64_t token = r.row(group * n + i);
    if (!r.is_own(token)) continue;  // uniform over the warp
    float* const probs = r.probs + token * count;
    const float* const dgate = dgates + (token - r.first_own) * k;
    const int32_t* const chosen = r.experts + token * k;
    // gate_j = p_j / divisor
    float mean = 0;
    for (int64_t j = 0; j < k; ++j) mean += dgate[j] * r.gates[token * k + j];
    const float divisor = gate_divisor(r, token);
    const auto dprob = [&](int64_t e) {
      float sum = factor * r.density[group * count + e];
      for (int64_t j = 0; j < k; ++j)
        if (chosen[j] == e) sum += (dgate[j] - mean) / divisor;
      return sum;
    };
    float dot = 0;
    for (int64_t e = lane; e < count; e += kWarp) dot += dprob(e) * probs[e];
    dot = warp_sum(dot);
    // The other lanes have read the probabilities; a shuffle does not order memory.
    __syncwarp();
    for (int64_t e = lane; e < count; e += kWarp) probs[e] *= dprob(e) - dot;
  }
}

}  // namespace

void route(cudaStream_t stream, const RoutingArrays& r) {
  const auto experts = static_cast<unsigned>(r.experts_count);
  const auto groups = static_cast<unsigned>(r.groups);
  launch(stream, blocks_for(r.tokens * kWarp), kThreads, choose_kernel, r);
  launch(stream, dim3(experts), kThreads, slots_kernel, r);
  launch(stream, dim3(1), 1, offsets_kernel, r);
  launch(stream, blocks_for(r.tokens * r.per_token), kThreads, shift_slots_kernel, r);
  launch(stream, dim3(experts, groups), kThreads, density_kernel, r);
  launch(stream, dim3(groups), kThreads, balance_kernel, r);
}

void route_backward(cudaStream_t stream, const RoutingArrays& r, const float* dgates) {
  const dim3 blocks(static_cast<unsigned>(ceil_div(r.group_tokens(), kTokensPerBlock)),
                    static_cast<unsigned>(r.groups));
  launch(stream, blocks, kThreads, backward_kernel, r, dgates);
}

}  // namespace muster::trainer::cuda
