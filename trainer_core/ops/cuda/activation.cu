// The MLP's activation, gated (SwiGLU, GeGLU: Shazeer, 2020) or not, and its gradient, which may
// overwrite the input. Bound by memory: a thread handles 16 bytes of the output and, with a gate,
// twice that of the input.
#include "trainer_core/ops/cuda/device.cuh"
#include "trainer_core/ops/cuda/kernels.h"
#include "trainer_core/ops/cuda/vectors.cuh"

namespace muster::trainer::cuda {
namespace {

// The quotient is off by at most 2 units in the last place; an exact one costs more than the
// memory.
__device__ inline float sigmoid(float x) { return __fdividef(1.0F, 1.0F + expf(-x)); }

// f(x) and f'(x).
struct ValueAndSlope {
  float value;
  float slope;
};

struct Silu {
  // silu' = sig (1 + x (1 - sig))
  __device__ static ValueAndSlope of(float x) {
    const float sig = sigmoid(x);
    return {x * sig, sig * (1.0F + x * (1.0F - sig))};
  }
};

// 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x³).
struct Gelu {
  static constexpr float kTwiceRoot = 1.5957691216057308F;
  static constexpr float kCubic = 0.044715F;

  // gelu' = sig (1 + x (1 - sig) (2u)'). Beyond 100 the slope is 1 or 0 in fp32; the bound on x
  // keeps the products finite.
  __device__ static ValueAndSlope of(float x) {
    const float sig = sigmoid(x * (x * x * (kTwiceRoot * kCubic) + kTwiceRoot));
    const float near = fminf(fmaxf(x, -100.0F), 100.0F);
    const float steepness = near * near * (3 * kTwiceRoot * kCubic) + kTwiceRoot;
    return {x * sig, sig * (1.0F + near * (1.0F - sig) * steepness)};
  }
};

struct Relu {
  __device__ static ValueAndSlope of(float x) { return {fmaxf(x, 0.0F), x > 0 ? 1.0F : 0.0F}; }
};

// A thread has a pack of neighbouring outputs.
template <class F, class T, int kCount>
__global__ void forward_kernel(ActivationRows args) {
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
      for (int e = 0; e < kCount; ++e) x.of[e] = F::of(x.of[e]).value * up.of[e];
    } else {
#pragma unroll
      for (int e = 0; e < kCount; ++e) x.of[e] = F::of(x.of[e]).value;
    }
    store(x, out + i * kCount);
  }
}

template <class F, class T, int kCount>
__global__ void backward_kernel(ActivationRows args) {
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
        const ValueAndSlope f = F::of(x.of[e]);
        x.of[e] = grad.of[e] * up.of[e] * f.slope;
        up.of[e] = grad.of[e] * f.value;
      }
      store(up, d_in + at + args.width);
    } else {
#pragma unroll
      for (int e = 0; e < kCount; ++e) x.of[e] = grad.of[e] * F::of(x.of[e]).slope;
    }
    store(x, d_in + at);
  }
}

// Calls body(F, element) for the activation and its element type.
template <class Body>
void with_activation(const ActivationRows& args, const Body& body) {
  with_type(args.dtype, [&](auto number) {
    switch (args.kind) {
      case Activation::kSilu:
        return body(Silu(), number);
      case Activation::kGelu:
        return body(Gelu(), number);
      case Activation::kRelu:
        return body(Relu(), number);
    }
  });
}

// Starts the kernel that choose(F, number, pack) returns, with a thread for each pack of outputs.
template <class Choose>
void start(cudaStream_t stream, const ActivationRows& args, const Choose& choose) {
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

void activate(cudaStream_t stream, const ActivationRows& args) {
  start(stream, args, [](auto f, auto number, auto pack) {
    return forward_kernel<decltype(f), decltype(number), decltype(pack)::kElements>;
  });
}

void activate_backward(cudaStream_t stream, const ActivationRows& args) {
  start(stream, args, [](auto f, auto number, auto pack) {
    return backward_kernel<decltype(f), decltype(number), decltype(pack)::kElements>;
  });
}

}  // namespace muster::trainer::cuda
