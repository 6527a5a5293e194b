// Adam, Adafactor and plain updates of flat blocks, in one pass each. All parameters of a block are
// contiguous, so one launch updates all of them.
#include "trainer_core/ops/cuda/device/device.cuh"
#include "trainer_core/ops/cuda/device/kernels.h"
#include "trainer_core/ops/cuda/device/philox.cuh"

namespace muster::trainer::cuda {
namespace {

// An AdamStep, converted to the kernel's types.
struct Adam {
  float scale, b1, b1_rest, b2, b2_rest, m_correction, v_correction, eps, eps_root, rate, kept;
  bool by_chance;
  AdamStep::Noise noise;

  static Adam of(const AdamStep& step) {
    const auto number = [](double value) { return static_cast<float>(value); };
    return {number(step.grad_scale),
            number(step.b1),
            number(1 - step.b1),
            number(step.b2),
            number(1 - step.b2),
            number(1 / step.bias_correction1),
            number(1 / step.bias_correction2),
            number(step.eps),
            number(step.eps_root),
            number(step.learning_rate),
            number(1 - step.learning_rate * step.weight_decay),
            step.noise.has_value(),
            step.noise.value_or(AdamStep::Noise{})};
  }
};

// Rounds to one of the two neighbouring bf16 values; the word decides which.
__device__ inline float round_by_chance(float value, uint32_t word) {
  const uint32_t bits = __float_as_uint(value);
  return value != value ? value : __uint_as_float((bits + (word & 0xffff)) & 0xffff0000);
}

// Updates both moments of element i; returns its direction.
template <class M>
__device__ inline float direction(const Adam& step, int64_t i, float grad, M* m, float* v) {
  const float g = grad * step.scale;
  const float m_new = step.b1 * to_float(m[i]) + step.b1_rest * g;
  const float v_new = step.b2 * v[i] + step.b2_rest * (g * g);
  const AdamStep::Noise& noise = step.noise;
  m[i] = from_float<M>(
      step.by_chance
          ? round_by_chance(m_new, element_word(noise.key, 0, noise.update, noise.first + i))
          : m_new);
  v[i] = v_new;
  return m_new * step.m_correction / (sqrtf(v_new * step.v_correction + step.eps_root) + step.eps);
}

template <class P, class M>
__global__ void adam_kernel(int64_t n, Adam step, const float* grads, P* params, M* m, float* v) {
  for (int64_t i = global_index(); i < n; i += global_count()) {
    const float update = direction(step, i, grads[i], m, v);
    params[i] = from_float<P>(to_float(params[i]) * step.kept - step.rate * update);
  }
}

template <class M>
__global__ void adam_direction_kernel(int64_t n, Adam step, float* grads, M* m, float* v) {
  for (int64_t i = global_index(); i < n; i += global_count())
    grads[i] = direction(step, i, grads[i], m, v);
}

__global__ void adafactor_kernel(int64_t n, float scale, float decay, float rest, float eps,
                                 float* grads, float* v) {
  for (int64_t i = global_index(); i < n; i += global_count()) {
    const float g = grads[i] * scale;
    v[i] = decay * v[i] + rest * (g * g + eps);
    grads[i] = g / sqrtf(v[i]);
  }
}

__global__ void means_kernel(int64_t n, double scale, double decay, double eps, const double* sums,
                             float* means) {
  for (int64_t i = global_index(); i < n; i += global_count()) {
    const double square = sums[i] * scale + eps;
    means[i] = static_cast<float>(decay * static_cast<double>(means[i]) + (1 - decay) * square);
  }
}

__global__ void factored_direction_kernel(FactoredDirection args) {
  for (int64_t i = global_index(); i < args.rows * args.width; i += global_count()) {
    const double row_mean = static_cast<double>(args.row_means[i / args.width]);
    const auto factor =
        static_cast<float>(static_cast<double>(args.grad_scale) * sqrt(args.mean / row_mean));
    args.grads[i] = args.grads[i] * factor / sqrtf(args.column_means[i % args.width]);
  }
}

template <class P>
__global__ void apply_update_kernel(int64_t n, float rate, float kept, const float* direction,
                                    P* params) {
  for (int64_t i = global_index(); i < n; i += global_count())
    params[i] = from_float<P>(to_float(params[i]) * kept - rate * direction[i]);
}

}  // namespace

void adam(cudaStream_t stream, const AdamStep& step, const Tensor& grads, const Tensor& params,
          const Tensor& m, const Tensor& v) {
  const int64_t n = grads.elements();
  with_type(params.dtype, [&](auto parameter) {
    using P = decltype(parameter);
    with_type(m.dtype, [&](auto number) {
      using M = decltype(number);
      launch(stream, blocks_for(n), kThreads, adam_kernel<P, M>, n, Adam::of(step), grads.f32(),
             static_cast<P*>(params.data), static_cast<M*>(m.data), v.f32());
    });
  });
}

void adam_direction(cudaStream_t stream, const AdamStep& step, const Tensor& grads, const Tensor& m,
                    const Tensor& v) {
  const int64_t n = grads.elements();
  with_type(m.dtype, [&](auto number) {
    using M = decltype(number);
    launch(stream, blocks_for(n), kThreads, adam_direction_kernel<M>, n, Adam::of(step),
           grads.f32(), static_cast<M*>(m.data), v.f32());
  });
}

void adafactor(cudaStream_t stream, int64_t n, const AdafactorStep& step, float* grads, float* v) {
  launch(stream, blocks_for(n), kThreads, adafactor_kernel, n, static_cast<float>(step.grad_scale),
         static_cast<float>(step.decay), static_cast<float>(1 - step.decay),
         static_cast<float>(step.eps), grads, v);
}

void adafactor_means(cudaStream_t stream, int64_t n, const AdafactorStep& step, int64_t count,
                     const double* sums, float* means) {
  const double scale = step.grad_scale * step.grad_scale / static_cast<double>(count);
  launch(stream, blocks_for(n), kThreads, means_kernel, n, scale, step.decay, step.eps, sums,
         means);
}

void factored_direction(cudaStream_t stream, const FactoredDirection& args) {
  launch(stream, blocks_for(args.rows * args.width), kThreads, factored_direction_kernel, args);
}

void apply_update(cudaStream_t stream, float rate, float kept, const float* direction,
                  const Tensor& params) {
  const int64_t n = params.elements();
  with_type(params.dtype, [&](auto number) {
    using P = decltype(number);
    launch(stream, blocks_for(n), kThreads, apply_update_kernel<P>, n, rate, kept, direction,
           static_cast<P*>(params.data));
  });
}

}  // namespace muster::trainer::cuda
