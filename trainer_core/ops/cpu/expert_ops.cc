// The CPU backend's mixtures of experts.
#include <algorithm>
#include <array>
#include <initializer_list>

#include "trainer_core/ops/cpu/cpu_ops.h"
#include "trainer_core/ops/cpu/parallel.h"
#include "trainer_core/ops/cpu/routing.h"
#include "trainer_core/ops/cpu/value_checks.h"

namespace muster::trainer::cpu {
namespace {

RoutingArrays arrays(const RoutingShape& shape, const Tensor& weights, const Routing& routing) {
  return {shape,
          shape.balance_weight == 0 ? nullptr : weights.f32(),
          routing.probs.f32(),
          routing.experts.i32(),
          routing.gates.f32(),
          routing.slots.i32(),
          routing.offsets.i32(),
          routing.density.f32(),
          routing.balance.f32(),
          routing.order.data == nullptr ? nullptr : routing.order.i32()};
}

// Calls body with a number of the tensors' type, which is one for all.
template <class Body>
void with_type(std::initializer_list<Tensor> tensors, const Body& body) {
  if (same_type(tensors) == DType::kBf16) {
    body(Bf16());
  } else {
    body(float());
  }
}

// The rows (R, d) of tokens, by their slots (T, k).
template <class T>
struct Rows {
  Rows(const Tensor& slots, const Tensor& tokens, const Tensor& rows)
      : per_token(slots.elements() / tokens.dim(0)),
        width(tokens.dim(1)),
        slot(slots.i32()),
        data(static_cast<T*>(rows.float_data())) {}
  // Calls body(choice index in (T, k), row).
  template <class Body>
  void for_rows_of_token(int64_t token, const Body& body) const {
    for (int64_t i = token * per_token; i < (token + 1) * per_token; ++i)
      if (slot[i] >= 0) body(i, data + slot[i] * width);
  }

  int64_t per_token;
  int64_t width;
  const int32_t* slot;
  T* data;
};

template <class T>
void add_scaled(int64_t n, float factor, const T* x, float* sums) {
  for (int64_t i = 0; i < n; ++i) sums[i] += factor * to_float(x[i]);
}

// Adds up rows of a token piece by piece: to = (or +=) the sum of factor(choice) * row.
template <class T, class Factor>
void sum_rows(const Rows<T>& rows, int64_t token, bool add, const Factor& factor, T* to) {
  std::array<float, 256> sums{};
  for (int64_t first = 0; first < rows.width; first += static_cast<int64_t>(sums.size())) {
    const int64_t count = std::min(static_cast<int64_t>(sums.size()), rows.width - first);
    for (int64_t j = 0; j < count; ++j)
      sums[static_cast<size_t>(j)] = add ? to_float(to[first + j]) : 0.0F;
    rows.for_rows_of_token(token, [&](int64_t i, const T* row) {
      add_scaled(count, factor(i), row + first, sums.data());
    });
    for (int64_t j = 0; j < count; ++j) to[first + j] = from_float<T>(sums[static_cast<size_t>(j)]);
  }
}

template <class T>
void scale_row(int64_t n, float factor, T* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = from_float<T>(factor * to_float(x[i]));
}

// Several sums side by side, which the compiler makes vectors of.
template <class T>
float dot(int64_t n, const T* x, const T* y) {
  constexpr int64_t kSums = 16;
  std::array<float, kSums> sums{};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (size_t j = 0; j < kSums; ++j) {
      const int64_t at = i + static_cast<int64_t>(j);
      sums[j] += to_float(x[at]) * to_float(y[at]);
    }
  }
  float total = 0;
  for (const float sum : sums) total += sum;
  for (; i < n; ++i) total += to_float(x[i]) * to_float(y[i]);
  return total;
}

// The part of a matrix of experts that begins with row `row` of `width`.
MatrixIn input_rows(const Tensor& x, int64_t row, int64_t width) {
  return {static_cast<const char*>(x.float_data()) +
              row * width * static_cast<int64_t>(dtype_bytes(x.dtype)),
          x.dtype};
}
MatrixOut output_rows(const Tensor& x, int64_t row, int64_t width) {
  return {
      static_cast<char*>(x.float_data()) + row * width * static_cast<int64_t>(dtype_bytes(x.dtype)),
      x.dtype};
}

}  // namespace

void CpuOps::do_route(const RoutingShape& shape, const Tensor& weights, const Routing& routing) {
  const RoutingArrays args = arrays(shape, weights, routing);
  parallel_for(useful_threads(threads_, routing.probs.elements()), shape.tokens,
               [&](int64_t begin, int64_t end, int) { choose_experts(begin, end, args); });
  assign_slots(args);
  balance_groups(0, shape.groups, args);
}

void CpuOps::do_route_backward(const RoutingShape& shape, const Tensor& weights,
                               const Tensor& dgates, const Routing& routing) {
  const RoutingArrays args = arrays(shape, weights, routing);
  parallel_for(useful_threads(threads_, routing.probs.elements()), shape.tokens,
               [&](int64_t begin, int64_t end, int) {
                 route_backward_tokens(begin, end, args, dgates.f32());
               });
}

template <class Body>
void CpuOps::split_tokens(const Tensor& slots, const Tensor& tokens, const Body& body) {
  parallel_for(useful_threads(threads_, slots.elements() * tokens.dim(1)), tokens.dim(0),
               [&](int64_t begin, int64_t end, int) { body(begin, end); });
}

void CpuOps::do_dispatch(const Tensor& slots, const Tensor& x, const Tensor& rows) {
  with_type({x, rows}, [&](auto number) {
    using T = decltype(number);
    const Rows<T> all(slots, x, rows);
    const auto* from = static_cast<const T*>(x.float_data());
    split_tokens(slots, x, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        all.for_rows_of_token(
            token, [&](int64_t, T* row) { std::copy_n(from + token * all.width, all.width, row); });
      }
    });
  });
}

void CpuOps::do_dispatch_backward(const Tensor& slots, const Tensor& drows, const Tensor& dx) {
  with_type({drows, dx}, [&](auto number) {
    using T = decltype(number);
    const Rows<T> all(slots, dx, drows);
    split_tokens(slots, dx, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        sum_rows(
            all, token, /*add=*/true, [](int64_t) { return 1.0F; },
            static_cast<T*>(dx.float_data()) + token * all.width);
      }
    });
  });
}

void CpuOps::do_combine(const Tensor& slots, const Tensor& gates, const Tensor& rows,
                        const Tensor& out) {
  with_type({rows, out}, [&](auto number) {
    using T = decltype(number);
    const Rows<T> all(slots, out, rows);
    split_tokens(slots, out, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        sum_rows(
            all, token, /*add=*/false, [&](int64_t i) { return gates.f32()[i]; },
            static_cast<T*>(out.float_data()) + token * all.width);
      }
    });
  });
}

void CpuOps::do_combine_backward(const Tensor& slots, const Tensor& gates, const Tensor& act,
                                 const Tensor& dact, const Tensor& dgates) {
  const int64_t width = act.dim(1);
  const int32_t* slot = slots.i32();
  with_type({act, dact}, [&](auto number) {
    using T = decltype(number);
    parallel_for(useful_threads(threads_, act.elements()), slots.elements(),
                 [&](int64_t begin, int64_t end, int) {
                   for (int64_t i = begin; i < end; ++i) {
                     dgates.f32()[i] = 0;
                     if (slot[i] < 0) continue;
                     T* row = static_cast<T*>(act.float_data()) + slot[i] * width;
                     T* drow = static_cast<T*>(dact.float_data()) + slot[i] * width;
                     dgates.f32()[i] = dot<T>(width, row, drow);
                     scale_row(width, gates.f32()[i], row);
                     scale_row(width, gates.f32()[i], drow);
                   }
                 });
  });
}

template <class Body>
void CpuOps::for_experts(const Tensor& offsets, int64_t rows, const Body& body) {
  const int32_t* offset = offsets.i32();
  const int64_t experts = offsets.elements() - 1;
  MUSTER_CHECK(offset[0] == 0 && offset[experts] <= rows)
      << offset[experts] << " rows of experts in a buffer of " << rows;
  for (int64_t e = 0; e < experts; ++e) body(e, offset[e], offset[e + 1] - offset[e]);
}

Gemm& CpuOps::gemm() {
  if (!gemm_) gemm_.emplace(threads_);
  return *gemm_;
}

void CpuOps::do_expert_matmul(const Tensor& offsets, const Tensor& x, const Tensor& w,
                              const Tensor& y) {
  const int64_t in = x.dim(1), out = y.dim(1);
  for_experts(offsets, x.dim(0), [&](int64_t e, int64_t first, int64_t rows) {
    gemm().run({rows, out, in, false, true, false}, input_rows(x, first, in),
               input_rows(w, e * out, in), output_rows(y, first, out));
  });
}

void CpuOps::do_expert_matmul_dx(const Tensor& offsets, const Tensor& dy, const Tensor& w,
                                 const Tensor& dx) {
  const int64_t in = dx.dim(1), out = dy.dim(1);
  for_experts(offsets, dy.dim(0), [&](int64_t e, int64_t first, int64_t rows) {
    gemm().run({rows, in, out, false, false, false}, input_rows(dy, first, out),
               input_rows(w, e * out, in), output_rows(dx, first, in));
  });
}

void CpuOps::do_expert_matmul_dw(const Tensor& offsets, const Tensor& dy, const Tensor& x,
                                 const Tensor& dw, Accumulate accumulate) {
  const int64_t in = x.dim(1), out = dy.dim(1);
  for_experts(offsets, x.dim(0), [&](int64_t e, int64_t first, int64_t rows) {
    gemm().run({out, in, rows, true, false, accumulate == Accumulate::kYes},
               input_rows(dy, first, out), input_rows(x, first, in), output_rows(dw, e * out, in));
  });
}

}  // namespace muster::trainer::cpu
