// An MLP's activation, gated (SwiGLU, GeGLU: Shazeer, 2020) or not, and its gradient, in place or not. A thread has one element of the output, and
// with a gate two of the input.
#include "trainer_core/ops/cuda/device.cuh"
#include "trainer_core/ops/cuda/kernels.h"

namespace muster::trainer::cuda {
namespace {

__device__ inline float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

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

  // gelu' = sig (1 + x (1 - sig) (2u)'). Beyond 100 it is 1 or 0 in fp32; a bounded x keeps the products finite.
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

template <class F, class T>
__global__ void forward_kernel(ActivationRows args) {
  const T* in = static_cast<const T*>(args.in);
  T* out = static_cast<T*>(args.out);
  const int64_t n = args.rows * args.width;
  for (int64_t i = global_index(); i < n; i += global_count()) {
    const T* at = in + i / args.width * args.in_width + i % args.width;
    const float f = F::of(to_float(*at)).value;
    out[i] = from_float<T>(args.gated ? f * to_float(at[args.width]) : f);
  }
}

template <class F, class T>
__global__ void backward_kernel(ActivationRows args) {
  const T* in = static_cast<const T*>(args.in);
  const T* dout = static_cast<const T*>(args.out);
  T* d_in = static_cast<T*>(args.d_in);
  const int64_t n = args.rows * args.width;
  for (int64_t i = global_index(); i < n; i += global_count()) {
    const int64_t at = i / args.width * args.in_width + i % args.width;
    const float grad = to_float(dout[i]);
    const ValueAndSlope f = F::of(to_float(in[at]));
    if (args.gated) {
      const float up = to_float(in[at + args.width]);
      d_in[at] = from_float<T>(grad * up * f.slope);
      d_in[at + args.width] = from_float<T>(grad * f.value);
    } else {
      d_in[at] = from_float<T>(grad * f.slope);
    }
  }
}

// Calls body(F, number) for the activation and the type of its numbers.
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

}  // namespace

void activate(cudaStream_t stream, const ActivationRows& args) {
  with_activation(args, [&](auto f, auto number) {
    launch(stream, blocks_for(args.rows * args.width), kThreads,
           forward_kernel<decltype(f), decltype(number)>, args);
  });
}

void activate_backward(cudaStream_t stream, const ActivationRows& args) {
  with_activation(args, [&](auto f, auto number) {
    launch(stream, blocks_for(args.rows * args.width), kThreads,
           backward_kernel<decltype(f), decltype(number)>, args);
  });
}

}  // namespace muster::trainer::cuda
