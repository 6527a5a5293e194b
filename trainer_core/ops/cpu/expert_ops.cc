#include "trainer_core/ops/cpu/expert_ops.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/parallel.h"
#include "trainer_core/ops/cpu/routing.h"

namespace muster::trainer::cpu {
namespace {

void check_routing(const RoutingShape& shape, const Tensor& weights, const Routing& routing) {
  MUSTER_CHECK(shape.groups >= 1 && shape.tokens % shape.groups == 0 && shape.per_token >= 1 &&
               shape.per_token <= shape.experts)
      << shape.tokens << " tokens in " << shape.groups << " groups, " << shape.per_token << " of "
      << shape.experts << " experts";
  MUSTER_CHECK(
      (shape.balance_weight == 0 || weights.elements() == shape.tokens) &&
      routing.probs.elements() == shape.tokens * shape.experts &&
      routing.experts.elements() == shape.rows() && routing.gates.elements() == shape.rows() &&
      routing.slots.elements() == shape.rows() && routing.offsets.elements() == shape.experts + 1 &&
      routing.density.elements() == shape.groups * shape.experts &&
      routing.balance.elements() == shape.groups)
      << "tensors of another routing";
}

RoutingArrays arrays(const RoutingShape& shape, const Tensor& weights, const Routing& routing) {
  check_routing(shape, weights, routing);
  return {shape,
          shape.balance_weight == 0 ? nullptr : weights.f32(),
          routing.probs.f32(),
          routing.experts.i32(),
          routing.gates.f32(),
          routing.slots.i32(),
          routing.offsets.i32(),
          routing.density.f32(),
          routing.balance.f32()};
}

// Rows of a token: `slots` (k of them) of token `token`, of rows (R, d).
struct Rows {
  Rows(const Tensor& slots, const Tensor& tokens, const Tensor& rows)
      : per_token(slots.elements() / tokens.dim(0)),
        width(tokens.dim(1)),
        slot(slots.i32()),
        data(rows.f32()) {
    MUSTER_CHECK(rows.dim(1) == width && rows.dim(0) == slots.elements())
        << "rows (" << rows.dim(0) << ", " << rows.dim(1) << ") for " << slots.elements()
        << " slots of width " << width;
  }
  // Calls body(choice index in (T, k), row).
  template <class Body>
  void of_token(int64_t token, const Body& body) const {
    for (int64_t i = token * per_token; i < (token + 1) * per_token; ++i)
      if (slot[i] >= 0) body(i, data + slot[i] * width);
  }

  int64_t per_token;
  int64_t width;
  const int32_t* slot;
  float* data;
};

void add_scaled(int64_t n, float factor, const float* x, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

// Several sums side by side, which the compiler makes vectors of.
float dot(int64_t n, const float* x, const float* y) {
  constexpr int64_t kSums = 16;
  std::array<float, kSums> sums{};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (size_t j = 0; j < kSums; ++j)
      sums[j] += x[i + static_cast<int64_t>(j)] * y[i + static_cast<int64_t>(j)];
  float total = 0;
  for (const float sum : sums) total += sum;
  for (; i < n; ++i) total += x[i] * y[i];
  return total;
}

}  // namespace

void CpuExpertOps::route(const RoutingShape& shape, const Tensor& weights, const Routing& routing) {
  const RoutingArrays args = arrays(shape, weights, routing);
  parallel_for(useful_threads(threads_, routing.probs.elements()), shape.tokens,
               [&](int64_t begin, int64_t end, int) { choose_experts(begin, end, args); });
  assign_slots(args);
  balance_groups(0, shape.groups, args);
}

void CpuExpertOps::route_backward(const RoutingShape& shape, const Tensor& weights,
                                  const Tensor& dgates, const Routing& routing) {
  const RoutingArrays args = arrays(shape, weights, routing);
  MUSTER_CHECK(dgates.elements() == shape.rows()) << dgates.elements() << " gates' gradients";
  parallel_for(useful_threads(threads_, routing.probs.elements()), shape.tokens,
               [&](int64_t begin, int64_t end, int) {
                 route_backward_tokens(begin, end, args, dgates.f32());
               });
}

template <class Body>
void CpuExpertOps::for_tokens(const Tensor& slots, const Tensor& tokens, const Body& body) {
  parallel_for(useful_threads(threads_, slots.elements() * tokens.dim(1)), tokens.dim(0),
               [&](int64_t begin, int64_t end, int) {
                 for (int64_t token = begin; token < end; ++token)
                   body(token, tokens.f32() + token * tokens.dim(1));
               });
}

void CpuExpertOps::dispatch(const Tensor& slots, const Tensor& x, const Tensor& rows) {
  const Rows all(slots, x, rows);
  for_tokens(slots, x, [&](int64_t token, const float* from) {
    all.of_token(token, [&](int64_t, float* row) { std::copy_n(from, all.width, row); });
  });
}

void CpuExpertOps::dispatch_backward(const Tensor& slots, const Tensor& drows, const Tensor& dx) {
  const Rows all(slots, dx, drows);
  for_tokens(slots, dx, [&](int64_t token, float* to) {
    all.of_token(token, [&](int64_t, const float* row) { add_scaled(all.width, 1, row, to); });
  });
}

void CpuExpertOps::combine(const Tensor& slots, const Tensor& gates, const Tensor& rows,
                           const Tensor& out) {
  const Rows all(slots, out, rows);
  for_tokens(slots, out, [&](int64_t token, float* to) {
    std::fill_n(to, all.width, 0.0F);
    all.of_token(token, [&](int64_t i, const float* row) {
      add_scaled(all.width, gates.f32()[i], row, to);
    });
  });
}

void CpuExpertOps::combine_backward(const Tensor& slots, const Tensor& gates, const Tensor& act,
                                    const Tensor& dact, const Tensor& dgates) {
  const int64_t width = act.dim(1);
  MUSTER_CHECK(act.dim(0) == slots.elements() && dact.elements() == act.elements() &&
               gates.elements() == slots.elements() && dgates.elements() == slots.elements())
      << "combine_backward of " << slots.elements() << " slots and " << act.dim(0) << " rows";
  const int32_t* slot = slots.i32();
  parallel_for(useful_threads(threads_, act.elements()), slots.elements(),
               [&](int64_t begin, int64_t end, int) {
                 for (int64_t i = begin; i < end; ++i) {
                   dgates.f32()[i] = 0;
                   if (slot[i] < 0) continue;
                   float* row = act.f32() + slot[i] * width;
                   float* drow = dact.f32() + slot[i] * width;
                   dgates.f32()[i] = dot(width, row, drow);
                   scale_range(DType::kF32, width, gates.f32()[i], row);
                   scale_range(DType::kF32, width, gates.f32()[i], drow);
                 }
               });
}

template <class Body>
void CpuExpertOps::for_experts(const Tensor& offsets, int64_t rows, const Body& body) {
  const int32_t* offset = offsets.i32();
  const int64_t experts = offsets.elements() - 1;
  MUSTER_CHECK(offset[0] == 0 && offset[experts] <= rows)
      << offset[experts] << " rows of experts in a buffer of " << rows;
  for (int64_t e = 0; e < experts; ++e) body(e, offset[e], offset[e + 1] - offset[e]);
}

void CpuExpertOps::expert_matmul(const Tensor& offsets, const Tensor& x, const Tensor& w,
                                 const Tensor& y) {
  const int64_t in = x.dim(1), out = y.dim(1);
  MUSTER_CHECK(w.dim(1) == out && w.dim(2) == in && x.dim(0) == y.dim(0)) << "expert_matmul";
  for_experts(offsets, x.dim(0), [&](int64_t e, int64_t first, int64_t rows) {
    gemm_.run({rows, out, in, false, true, false}, x.f32() + first * in, w.f32() + e * out * in,
              y.f32() + first * out);
  });
}

void CpuExpertOps::expert_matmul_dx(const Tensor& offsets, const Tensor& dy, const Tensor& w,
                                    const Tensor& dx) {
  const int64_t in = dx.dim(1), out = dy.dim(1);
  MUSTER_CHECK(w.dim(1) == out && w.dim(2) == in && dx.dim(0) == dy.dim(0)) << "expert_matmul_dx";
  for_experts(offsets, dy.dim(0), [&](int64_t e, int64_t first, int64_t rows) {
    gemm_.run({rows, in, out, false, false, false}, dy.f32() + first * out, w.f32() + e * out * in,
              dx.f32() + first * in);
  });
}

void CpuExpertOps::expert_matmul_dw(const Tensor& offsets, const Tensor& dy, const Tensor& x,
                                    const Tensor& dw, Accumulate accumulate) {
  const int64_t in = x.dim(1), out = dy.dim(1);
  MUSTER_CHECK(dw.dim(1) == out && dw.dim(2) == in && x.dim(0) == dy.dim(0)) << "expert_matmul_dw";
  for_experts(offsets, x.dim(0), [&](int64_t e, int64_t first, int64_t rows) {
    gemm_.run({out, in, rows, true, false, accumulate == Accumulate::kYes}, dy.f32() + first * out,
              x.f32() + first * in, dw.f32() + e * out * in);
  });
}

}  // namespace muster::trainer::cpu
