// The CUDA backend's ExpertOps. Built-in kernels compute the GEMMs: only the device has the number
// of rows of each expert, and reading it on the host would stall the stream at every layer.
#include "trainer_core/ops/cuda/cuda_ops.h"
#include "trainer_core/ops/cuda/experts/experts.h"
#include "trainer_core/ops/cuda/gemm/gemm.h"

namespace muster::trainer::cuda {
namespace {

RoutingArrays arrays(const RoutingShape& shape, const Tensor& weights, const Routing& routing) {
  // The limit of a grid's second and third dimension.
  constexpr int64_t kGridMax = 65'535;
  MUSTER_CHECK(shape.groups <= kGridMax && shape.experts <= kGridMax)
      << shape.experts << " experts and " << shape.groups << " groups";
  const bool ordered = routing.order.data != nullptr;
  return {.tokens = shape.tokens,
          .groups = shape.groups,
          .experts_count = shape.experts,
          .per_token = shape.per_token,
          .capacity = shape.capacity > 0 ? shape.capacity : shape.group_tokens(),
          .first_choices_first = shape.style == RouterStyle::kPax,
          .balance_weight = shape.balance_weight,
          .first_own = shape.first_own,
          .own = shape.own_tokens(),
          .weights = shape.balance_weight == 0 ? nullptr : weights.f32(),
          .probs = routing.probs.f32(),
          .experts = routing.experts.i32(),
          .gates = routing.gates.f32(),
          .slots = routing.slots.i32(),
          .offsets = routing.offsets.i32(),
          .density = routing.density.f32(),
          .balance = routing.balance.f32(),
          .order = ordered ? routing.order.i32() : nullptr};
}

ExpertRows expert_rows(const Tensor& slots, const Tensor& tokens, const Tensor& rows) {
  const int64_t width = tokens.dim(1);
  return {.dtype = tokens.dtype,
          .tokens = tokens.dim(0),
          .per_token = tokens.dim(0) == 0 ? 0 : slots.elements() / tokens.dim(0),
          .width = width,
          .slots = slots.i32(),
          .gates = nullptr,
          .token_rows = tokens.data,
          .expert_rows = rows.data};
}

bool is_half(const Tensor& a, const Tensor& b, const Tensor& c) {
  return a.dtype == DType::kBf16 || b.dtype == DType::kBf16 || c.dtype == DType::kBf16;
}

}  // namespace

void CudaOps::do_route(const RoutingShape& shape, const Tensor& weights, const Routing& routing) {
  cuda::route(stream_, arrays(shape, weights, routing));
}

void CudaOps::do_route_backward(const RoutingShape& shape, const Tensor& weights,
                                const Tensor& dgates, const Routing& routing) {
  cuda::route_backward(stream_, arrays(shape, weights, routing), dgates.f32());
}

void CudaOps::do_dispatch(const Tensor& slots, const Tensor& x, const Tensor& rows) {
  cuda::dispatch(stream_, expert_rows(slots, x, rows));
}
void CudaOps::do_dispatch_backward(const Tensor& slots, const Tensor& drows, const Tensor& dx) {
  cuda::dispatch_backward(stream_, expert_rows(slots, dx, drows));
}
void CudaOps::do_combine(const Tensor& slots, const Tensor& gates, const Tensor& rows,
                         const Tensor& out) {
  ExpertRows args = expert_rows(slots, out, rows);
  args.gates = gates.f32();
  cuda::combine(stream_, args);
}

void CudaOps::do_combine_backward(const Tensor& slots, const Tensor& gates, const Tensor& act,
                                  const Tensor& dact, const Tensor& dgates) {
  cuda::combine_backward(stream_, {.dtype = act.dtype,
                                   .slots_count = slots.elements(),
                                   .width = act.dim(1),
                                   .slots = slots.i32(),
                                   .gates = gates.f32(),
                                   .act = act.data,
                                   .dact = dact.data,
                                   .dgates = dgates.f32()});
}

void CudaOps::do_expert_matmul(const Tensor& offsets, const Tensor& x, const Tensor& w,
                               const Tensor& y) {
  const int64_t in = x.dim(1), out = y.dim(1);
  multiply_rows(stream_, {.gemm = {.m = x.dim(0),
                                   .n = out,
                                   .k = in,
                                   .a = Operand::of(x.dtype, x.float_data(), in, false),
                                   .b = Operand::of(w.dtype, w.float_data(), in, true),
                                   .rounded = is_half(x, w, y),
                                   .accumulate = false,
                                   .type = y.dtype,
                                   .c = y.float_data()},
                          .experts = offsets.elements() - 1,
                          .b_step = out * in,
                          .offsets = offsets.i32(),
                          .fault = fault()});
}

void CudaOps::do_expert_matmul_dx(const Tensor& offsets, const Tensor& dy, const Tensor& w,
                                  const Tensor& dx) {
  const int64_t in = dx.dim(1), out = dy.dim(1);
  multiply_rows(stream_, {.gemm = {.m = dy.dim(0),
                                   .n = in,
                                   .k = out,
                                   .a = Operand::of(dy.dtype, dy.float_data(), out, false),
                                   .b = Operand::of(w.dtype, w.float_data(), in, false),
                                   .rounded = is_half(dy, w, dx),
                                   .accumulate = false,
                                   .type = dx.dtype,
                                   .c = dx.float_data()},
                          .experts = offsets.elements() - 1,
                          .b_step = out * in,
                          .offsets = offsets.i32(),
                          .fault = fault()});
}

void CudaOps::do_expert_matmul_dw(const Tensor& offsets, const Tensor& dy, const Tensor& x,
                                  const Tensor& dw, Accumulate accumulate) {
  const int64_t in = x.dim(1), out = dy.dim(1);
  multiply_gradients(stream_, {.gemm = {.m = out,
                                        .n = in,
                                        .k = x.dim(0),
                                        .a = Operand::of(dy.dtype, dy.float_data(), out, true),
                                        .b = Operand::of(x.dtype, x.float_data(), in, false),
                                        .rounded = is_half(dy, x, dw),
                                        .accumulate = accumulate == Accumulate::kYes,
                                        .type = dw.dtype,
                                        .c = dw.float_data()},
                               .experts = offsets.elements() - 1,
                               .c_step = out * in,
                               .offsets = offsets.i32(),
                               .fault = fault()});
}

}  // namespace muster::trainer::cuda
