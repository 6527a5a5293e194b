// The CPU backend's ExpertOps.
#pragma once

#include <optional>

#include "trainer_core/ops/cpu/gemm.h"
#include "trainer_core/ops/cpu/quantize_ops.h"

namespace muster::trainer::cpu {

class CpuExpertOps : public CpuQuantizeOps {
 public:
  explicit CpuExpertOps(int threads) : CpuQuantizeOps(threads), gemm_(threads) {}

  void route(const RoutingShape& shape, const Tensor& weights, const Routing& routing) override;
  void route_backward(const RoutingShape& shape, const Tensor& weights, const Tensor& dgates,
                      const Routing& routing) override;
  void dispatch(const Tensor& slots, const Tensor& x, const Tensor& rows) override;
  void dispatch_backward(const Tensor& slots, const Tensor& drows, const Tensor& dx) override;
  void combine(const Tensor& slots, const Tensor& gates, const Tensor& rows,
               const Tensor& out) override;
  void combine_backward(const Tensor& slots, const Tensor& gates, const Tensor& act,
                        const Tensor& dact, const Tensor& dgates) override;
  void expert_matmul(const Tensor& offsets, const Tensor& x, const Tensor& w,
                     const Tensor& y) override;
  void expert_matmul_dx(const Tensor& offsets, const Tensor& dy, const Tensor& w,
                        const Tensor& dx) override;
  void expert_matmul_dw(const Tensor& offsets, const Tensor& dy, const Tensor& x, const Tensor& dw,
                        Accumulate accumulate) override;

 private:
  // Calls body(first token, last token) in parallel.
  template <class Body>
  void split_tokens(const Tensor& slots, const Tensor& tokens, const Body& body);
  // Calls body(expert, its first row, its rows).
  template <class Body>
  void for_experts(const Tensor& offsets, int64_t rows, const Body& body);

  // Always the built-in GEMM: an expert's row count changes at each call, and oneDNN compiles a
  // GEMM for each shape. Created at first use: a dense model does not need its panels.
  Gemm& gemm();
  std::optional<Gemm> gemm_;
};

}  // namespace muster::trainer::cpu
