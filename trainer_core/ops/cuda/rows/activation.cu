// The MLP's activation, gated (SwiGLU, GeGLU: Shazeer, 2020) or not, and its gradient, which may
// overwrite the input. Bound by memory: a thread handles 16 bytes of the output and, with a gate,
// twice that of the input.
#include "trainer_core/ops/cuda/device/device.cuh"
#include "trainer_core/ops/cuda/device/kernels.h"
#include "trainer_core/ops/cuda/device/vectors.cuh"

namespace muster::trainer::cuda {
namespace {

// The arithmetic of activation_formulas.inc. The compiler fuses products with sums.
using Value = float;
__device__ inline float constant(float x) { return x; }
__device__ inline float multiply_add(float a, float b, float c) { return a * b + c; }
__device__ inline float max(float x, float y) { return fmaxf(x, y); }
__device__ inline float clamp(float x, float low, float high) { return fminf(fmaxf(x, low), high); }
__device__ inline float one_if_positive(float x) { return x > 0 ? 1.0F : 0.0F; }
// The quotient is off by at most 2 units in the last place; an exact one costs more than the
// memory.
__device__ inline float sigmoid(float x) { return __fdividef(1.0F, 1.0F + expf(-x)); }

#define MUSTER_EACH __device__
#include "trainer_core/ops/activation_formulas.inc"
#undef MUSTER_EACH

// A thread has a pack of neighbouring outputs.
template <class F, class T, int kCount>
__global__ void forward_kernel(ActivationArgs args) {
  const T* in = static_cast<const T*>(args.in);
  T* out = static_cast<T*>(args.out);
  const int64_t width = args.width / kCount, n = args.rows * width;
  for (int64_t i = global_index(); i < n; i += global_count()) {
    const Split at = split(i, width);
    const T* from = in + at.quotient * args.in_width + at.remainder * kCount;
    Pack<kCount> x = load<kCount>(from);
    if (args.gated) {
      const Pack<kCount> up = load<kCount>(from + args.width);
#pragma unroll
      for (int e = 0; e < kCount; ++e) x.of[e] = F::value(x.of[e]) * up.of[e];
    } else {
#pragma unroll
      for (int e = 0; e < kCount; ++e) x.of[e] = F::value(x.of[e]);
    }
    store(x, out + i * kCount);
  }
}

template <class F, class T, int kCount>
__global__ void backward_kernel(ActivationArgs args) {
  const T* in = static_cast<const T*>(args.in);
  const T* dout = static_cast<const T*>(args.out);
  T* d_in = static_cast<T*>(args.d_in);
  const int64_t width = args.width / kCount, n = args.rows * width;
  for (int64_t i = global_index(); i < n; i += global_count()) {
    const Split offset = split(i, width);
    const int64_t at = offset.quotient * args.in_width + offset.remainder * kCount;
    const Pack<kCount> grad = load<kCount>(dout + i * kCount);
    Pack<kCount> x = load<kCount>(in + at);
    if (args.gated) {
      Pack<kCount> up = load<kCount>(in + at + args.width);
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        const ValueAndSlope f = F::both(x.of[e]);
        x.of[e] = grad.of[e] * up.of[e] * f.slope;
        up.of[e] = grad.of[e] * f.value;
      }
      store(up, d_in + at + args.width);
    } else {
#pragma unroll
      for (int e = 0; e < kCount; ++e) x.of[e] = grad.of[e] * F::both(x.of[e]).slope;
    }
    store(x, d_in + at);
  }
}

// Calls body(F, element) for the activation and its element type.
template <class Body>
void with_activation(const ActivationArgs& args, const Body& body) {
  with_type(args.dtype,
            [&](auto element) { with_formulas(args.kind, [&](auto f) { body(f, element); }); });
}

// Starts the kernel that choose(F, number, pack) returns, with a thread for each pack of outputs.
template <class Choose>
void start(cudaStream_t stream, const ActivationArgs& args, const Choose& choose) {
  with_activation(args, [&](auto f, auto number) {
    using T = decltype(number);
    const bool packs =
        in_packs(kPack<T>, {args.width, args.in_width}, {args.in, args.out, args.d_in});
    with_pack<T>(packs, [&](auto pack) {
      launch(stream, blocks_for(args.rows * (args.width / decltype(pack)::kElements)), kThreads,
             choose(f, number, pack), args);
    });
  });
}

}  // namespace

void activate(cudaStream_t stream, const ActivationArgs& args) {
  start(stream, args, [](auto f, auto number, auto pack) {
    return forward_kernel<decltype(f), decltype(number), decltype(pack)::kElements>;
  });
}

void activate_backward(cudaStream_t stream, const ActivationArgs& args) {
  start(stream, args, [](auto f, auto number, auto pack) {
    return backward_kernel<decltype(f), decltype(number), decltype(pack)::kElements>;
  });
}

}  // namespace muster::trainer::cuda
