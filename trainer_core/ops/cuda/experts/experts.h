// Launchers of the kernels for mixtures of experts (expert_ops.h, expert_ops.inc).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer_core/ops/cuda/device/kernels.h"

namespace muster::trainer::cuda {

// routing.cu. The arrays of a Routing, and its shape.
struct RoutingArrays {
  int64_t tokens, groups, experts_count, per_token;
  int64_t capacity;          // maximum number of a group's rows per expert
  bool first_choices_first;  // true: RouterStyle::kPax
  double balance_weight;
  // The first token of this rank, and the number of its tokens.
  int64_t first_own, own;
  const float* weights;  // (T), or null
  float* probs;          // (T, E)
  int32_t* experts;      // (T, k)
  float* gates;          // (T, k)
  int32_t* slots;        // (T, k)
  int32_t* offsets;      // (E + 1)
  float* density;        // (G, E)
  float* balance;        // (G)
  const int32_t* order;  // (T), or null

  __host__ __device__ int64_t group_tokens() const { return tokens / groups; }
  // Returns the row of the i-th token in group order.
  __device__ int64_t row(int64_t i) const { return order == nullptr ? i : order[i]; }
  __device__ bool is_own(int64_t row) const { return row >= first_own && row < first_own + own; }
};
void route(cudaStream_t, const RoutingArrays&);
void route_backward(cudaStream_t, const RoutingArrays&, const float* dgates);

// expert_rows.cu. The rows of tokens (T, d), and their copies (R, d) in the order of experts. slots
// (T, k) are indices of the copies.
struct ExpertRows {
  DType dtype;
  int64_t tokens, per_token, width;
  const int32_t* slots;
  const float* gates;  // used by combine() only
  void* token_rows;
  void* expert_rows;
};
void dispatch(cudaStream_t, const ExpertRows&);
void dispatch_backward(cudaStream_t, const ExpertRows&);
void combine(cudaStream_t, const ExpertRows&);
struct CombineBackward {
  DType dtype;
  int64_t slots_count, width;
  const int32_t* slots;
  const float* gates;
  void* act;   // (R, m), the experts' activations
  void* dact;  // (R, m), their gradient
  float* dgates;
};
void combine_backward(cudaStream_t, const CombineBackward&);

}  // namespace muster::trainer::cuda
