// Moves rows between tokens and experts, weighted by gates. Each row has one slot, so no two
// threads add to the same element.
#include "trainer_core/ops/cuda/device/device.cuh"
#include "trainer_core/ops/cuda/experts/experts.h"

namespace muster::trainer::cuda {
namespace {

template <class T>
__global__ void dispatch_kernel(ExpertRows args) {
  const int64_t row_elements = args.per_token * args.width;
  for (int64_t i = global_index(); i < args.tokens * row_elements; i += global_count()) {
    const int64_t slot = args.slots[i / args.width], column = i % args.width;
    if (slot < 0) continue;
    static_cast<T*>(args.expert_rows)[slot * args.width + column] =
        static_cast<const T*>(args.token_rows)[i / row_elements * args.width + column];
  }
}

// to = (or +=) the sum of factor * row, with or without gates.
template <class T, bool kGated>
__global__ void sum_rows_kernel(ExpertRows args) {
  T* const to = static_cast<T*>(args.token_rows);
  for (int64_t i = global_index(); i < args.tokens * args.width; i += global_count()) {
    const int64_t token = i / args.width, column = i % args.width;
    float sum = kGated ? 0.0F : to_float(to[i]);
    for (int64_t at = token * args.per_token; at < (token + 1) * args.per_token; ++at) {
      const int64_t slot = args.slots[at];
      if (slot < 0) continue;
      const float value =
          to_float(static_cast<const T*>(args.expert_rows)[slot * args.width + column]);
      sum += kGated ? args.gates[at] * value : value;
    }
    to[i] = from_float<T>(sum);
  }
}

// One block per slot.
template <class T>
__global__ void combine_backward_kernel(CombineBackward args) {
  const int64_t at = blockIdx.x, slot = args.slots[at];
  if (slot < 0) {
    if (threadIdx.x == 0) args.dgates[at] = 0;
    return;
  }
  T* const row = static_cast<T*>(args.act) + slot * args.width;
  T* const drow = static_cast<T*>(args.dact) + slot * args.width;
  const float gate = args.gates[at];
  float dot = 0;
  for (int64_t i = threadIdx.x; i < args.width; i += blockDim.x) {
    const float act = to_float(row[i]), dact = to_float(drow[i]);
    dot += act * dact;
    row[i] = from_float<T>(gate * act);
    drow[i] = from_float<T>(gate * dact);
  }
  dot = block_sum(dot);
  if (threadIdx.x == 0) args.dgates[at] = dot;
}

}  // namespace

void dispatch(cudaStream_t stream, const ExpertRows& args) {
  with_type(args.dtype, [&](auto number) {
    launch(stream, blocks_for(args.tokens * args.per_token * args.width), kThreads,
           dispatch_kernel<decltype(number)>, args);
  });
}
void dispatch_backward(cudaStream_t stream, const ExpertRows& args) {
  with_type(args.dtype, [&](auto number) {
    launch(stream, blocks_for(args.tokens * args.width), kThreads,
           sum_rows_kernel<decltype(number), false>, args);
  });
}
void combine(cudaStream_t stream, const ExpertRows& args) {
  with_type(args.dtype, [&](auto number) {
    launch(stream, blocks_for(args.tokens * args.width), kThreads,
           sum_rows_kernel<decltype(number), true>, args);
  });
}
void combine_backward(cudaStream_t stream, const CombineBackward& args) {
  with_type(args.dtype, [&](auto number) {
    launch(stream, one_block_each(args.slots_count), kThreads,
           combine_backward_kernel<decltype(number)>, args);
  });
}

}  // namespace muster::trainer::cuda
