// The CPU backend's implementation of the op table: splits the range of each operation among
// threads, which call the kernels. The functions of a family are defined beside its kernels
// (norm.cc, rope.cc, …) or in a file of their own (attention_ops.cc, expert_ops.cc, …).
// op_checks.cc has checked the shapes.
#pragma once

#include <optional>
#include <string_view>

#include "trainer_core/ops/cpu/gemm.h"
#include "trainer_core/ops/cpu/kernels.h"
#include "trainer_core/ops/cpu/matmul.h"
#include "trainer_core/ops/cpu/parallel.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer::cpu {

class CpuOps final : public Ops {
 public:
  explicit CpuOps(int threads) : threads_(threads), matmul_(threads) {}

  std::string_view name() const override { return "cpu"; }
  void upload(const void* from, const Tensor& to) override;
  void download(const Tensor& from, void* to) override;
  void synchronize() override {}
  void matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
              const Tensor& c, Accumulate accumulate) override;

 private:
#define MUSTER_OP(result, name, parameters, arguments) result do_##name parameters override;
#include "trainer_core/ops/op_table.inc"

  // Calls body(begin, end) on several threads for parts of [0, items). `elements`: number of
  // elements of all items, which determines the number of threads.
  template <class Body>
  void split(int64_t items, int64_t elements, const Body& body) {
    parallel_for(useful_threads(threads_, elements), items,
                 [&](int64_t begin, int64_t end, int) { body(begin, end); });
  }
  // Does the same for ranges of x's elements.
  template <class Body>
  void elementwise(const Tensor& x, const Body& body) {
    split(x.elements(), x.elements(), body);
  }

  void loss(const LossShape& shape, const Tensor& logits, const Tensor& targets,
            const Tensor& weights, const Tensor& losses, const Tensor& gradient);
  void attend(const AttentionForward& args, Workspace workspace);
  void attend_backward(AttentionBackward args, const Tensor& dbias, Accumulate accumulate,
                       Workspace workspace);
  template <class Body>
  void split_tokens(const Tensor& slots, const Tensor& tokens, const Body& body);
  template <class Body>
  void for_experts(const Tensor& offsets, int64_t rows, const Body& body);
  Gemm& gemm();

  int threads_;
  Matmul matmul_;
  std::optional<Gemm> gemm_;  // the experts' GEMM; created by its first call
};

// Returns the address of the element with this index.
inline void* at(const Tensor& x, int64_t element) {
  return static_cast<char*>(x.float_data()) + element * static_cast<int64_t>(dtype_bytes(x.dtype));
}

}  // namespace muster::trainer::cpu
