// Operations that are recorded instead of computed (step_recorder.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "trainer_core/forecast/recorder.h"
#include "trainer_core/forecast/reserved_memory.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// Collects the tensors among an operation's arguments, in order; a missing one is a null range.
struct TensorList {
  std::vector<MemoryRange> ranges;

  void add(const Tensor& tensor) { ranges.push_back(range_of(tensor)); }
  void add_read(const Tensor& tensor) {
    add(tensor);
    ranges.back().is_only_read = true;
  }
  void add(const WeightBlocks& blocks) {
    add(blocks.codes);
    add(blocks.scales);
  }
  void add(const NormWeights& weights) {
    add(weights.gain);
    add(weights.bias);
  }
  void add(const Routing& routing) {
    for (const Tensor& tensor : {routing.probs, routing.experts, routing.gates, routing.slots,
                                 routing.offsets, routing.density, routing.balance})
      add(tensor);
  }
  void add(const KvCache& cache) {
    add(cache.keys);
    add(cache.values);
  }
  void add(const KeyValueBlock& block) { add_read(block.rows); }
  void add(const AttentionSums& sums) {
    add(sums.out);
    add(sums.lse);
  }
  void add(const AttentionBlockGradients& gradients) {
    add(gradients.dq);
    add(gradients.dkv);
    add(gradients.dbias);
  }
  template <class Other>
  void add(const Other&) {}

  double bytes(size_t i) const { return static_cast<double>(ranges[i].end - ranges[i].begin); }
  double bytes() const {
    double all = 0;
    for (size_t i = 0; i < ranges.size(); ++i) all += bytes(i);
    return all;
  }
};

// Returns the bytes that an operation reads and writes: each of its tensors once, except those
// that it both reads and writes, and tables of which it needs some rows.
inline double moved_bytes(std::string_view name, const TensorList& tensors) {
  const double all = tensors.bytes();
  if (name == "scale" || name == "dropout" || name == "soft_cap") return 2 * all;
  if (name == "rope") return all + tensors.bytes(2);
  if (name == "add_bias") return all + tensors.bytes(1);
  if (name == "norm_backward") return all + tensors.bytes(5);
  if (name == "adam") return all + tensors.bytes(1) + tensors.bytes(2) + tensors.bytes(3);
  if (name == "apply_update") return all + tensors.bytes(1);
  if (name == "embedding") return all - tensors.bytes(1) + tensors.bytes(2);
  if (name == "embedding_backward") return all - tensors.bytes(2) + 2 * tensors.bytes(1);
  return all;
}

// Over all blocks of a ring, a query attends to half of the keys on average, as without a ring.
inline AttentionWork attention_work(const AttentionShape& shape, const Tensor& qkv, bool backward) {
  return {.batch = shape.batch,
          .heads = shape.heads,
          .queries = shape.seq_len,
          .keys = shape.window > 0 ? std::min(shape.seq_len, 2 * shape.window) : shape.seq_len,
          .head_dim = shape.head_dim,
          .backward = backward,
          .fp32 = qkv.dtype == DType::kF32};
}

class RecordingOps final : public Ops {
 public:
  RecordingOps(StepRecorder& recorder, const ReservedMemory& memory)
      : recorder_(recorder), memory_(memory), queue_(std::make_shared<RecordingQueue>(recorder)) {}

  std::string_view name() const override { return "recording"; }
  void upload(const void*, const Tensor&) override {}
  void download(const Tensor& from, void* to) override {
    std::memset(to, 0, from.bytes());
    const auto rows = expert_rows_.find(from.data);
    if (rows == expert_rows_.end()) return;
    auto* const offsets = static_cast<int32_t*>(to);
    const int64_t experts = from.elements() - 1;
    for (int64_t i = 0; i <= experts; ++i)
      offsets[i] = static_cast<int32_t>(rows->second * i / experts);
  }
  void synchronize() override {}
  std::shared_ptr<DeviceQueue> queue() override { return queue_; }
  void begin_range(const char* name, int64_t number) override {
    recorder_.begin_range(name, number);
  }
  void end_range() override { recorder_.end_range(); }

  void matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
              const Tensor& c, Accumulate accumulate) override {
    gemm(a, transpose_a, b, transpose_b, c, accumulate == Accumulate::kYes, {});
  }
  void fused_matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
                    const Tensor& c, const Epilogue& epilogue) override {
    gemm(a, transpose_a, b, transpose_b, c, /*adds=*/false, epilogue.pre);
  }

 private:
#define MUSTER_OP(result, name, parameters, arguments)                            \
  result do_##name parameters override {                                          \
    const auto add = [this](const auto&... all) {                                 \
      TensorList tensors;                                                         \
      (tensors.add(all), ...);                                                    \
      operation(#name, tensors);                                                  \
      if constexpr (requires { special_##name(all...); }) special_##name(all...); \
    };                                                                            \
    add arguments;                                                                \
    return result();                                                              \
  }
  void special_attention(const AttentionShape& shape, const Tensor& qkv, const Tensor&,
                         const Tensor&, const Tensor&, Workspace) {
    attend(attention_work(shape, qkv, false));
  }
  void special_attention_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor&,
                                  const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                  const Tensor&, Accumulate, Workspace) {
    attend(attention_work(shape, qkv, true));
  }
  void special_attention_block(const AttentionShape& shape, const Tensor& qkv, const KeyValueBlock&,
                               const Tensor&, const AttentionSums&, Accumulate, Workspace) {
    attend(attention_work(shape, qkv, false));
  }
  void special_attention_block_backward(const AttentionShape& shape, const Tensor& qkv,
                                        const KeyValueBlock&, const Tensor&, const Tensor&,
                                        const Tensor&, const Tensor&,
                                        const AttentionBlockGradients&, Workspace) {
    attend(attention_work(shape, qkv, true));
  }
  void special_quantize(NumberGrid, const Tensor&, ScaleOf, const Tensor&,
                        const std::optional<RoundingNoise>&, const Tensor& out) {
    rounded_.insert(out.data);
  }
  void special_copy(const Tensor& from, const Tensor& to) {
    if (!memory_.is_planned_host(from.data) && !memory_.is_planned_host(to.data)) return;
    last().kind = WorkKind::kHostCopy;
    last().bytes = static_cast<double>(from.bytes());
  }
  void special_route(const RoutingShape& shape, const Tensor&, const Routing& routing) {
    expert_rows_[routing.offsets.data] = shape.own_tokens() * shape.per_token;
  }
  void special_expert_matmul(const Tensor& offsets, const Tensor& x, const Tensor&,
                             const Tensor& y) {
    expert_gemm(offsets, x.dim(0), y.dim(1), x.dim(1));
  }
  void special_expert_matmul_dx(const Tensor& offsets, const Tensor& dy, const Tensor&,
                                const Tensor& dx) {
    expert_gemm(offsets, dy.dim(0), dx.dim(1), dy.dim(1));
  }
  void special_expert_matmul_dw(const Tensor& offsets, const Tensor& dy, const Tensor& x,
                                const Tensor&, Accumulate) {
    const int64_t experts = offsets.elements() - 1;
    set_gemm({.m = dy.dim(1),
              .n = x.dim(1),
              .k = std::max<int64_t>(dy.dim(0) / experts, 1),
              .batches = experts});
  }
#include "trainer_core/ops/op_table.inc"

  void operation(const char* name, const TensorList& tensors) {
    last_ = &recorder_.compute(
        {.kind = WorkKind::kMemory, .name = name, .bytes = moved_bytes(name, tensors)},
        tensors.ranges);
  }
  TracedWork& last() { return *last_; }

  void attend(const AttentionWork& work) {
    last().kind = WorkKind::kAttention;
    last().attention = work;
    // Forward: scores and weighted values. Backward: both again, and the gradients of three inputs.
    const double products = work.backward ? 5 : 2;
    last().flops = products * 2 * static_cast<double>(work.batch * work.heads * work.queries) *
                   static_cast<double>(work.keys * work.head_dim) / 2;
  }

  void set_gemm(const GemmShape& shape) {
    last().kind = WorkKind::kGemm;
    last().gemm = shape;
    last().flops = 2 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                   static_cast<double>(shape.k) * static_cast<double>(shape.batches);
  }
  void expert_gemm(const Tensor& offsets, int64_t rows, int64_t n, int64_t k) {
    const int64_t experts = offsets.elements() - 1;
    set_gemm({.m = std::max<int64_t>(rows / experts, 1), .n = n, .k = k, .batches = experts});
  }

  void gemm(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose, const Tensor& c,
            bool adds, const Tensor& extra) {
    const bool is_bf16 = a.dtype == DType::kBf16 || b.dtype == DType::kBf16;
    TensorList tensors;
    for (const Tensor& operand : {a, b}) tensors.add_read(operand);
    for (const Tensor& result : {c, extra}) tensors.add(result);
    double bytes = tensors.bytes() + (adds ? tensors.bytes(2) : 0);
    // The backend rounds fp32 operands to bf16 first, in a kernel of their own.
    for (const Tensor& operand : {a, b}) {
      if (!is_bf16 || operand.dtype != DType::kF32) continue;
      TensorList from;
      from.add_read(operand);
      const double half = from.bytes() / 2;
      last_ = &recorder_.compute(
          {.kind = WorkKind::kMemory, .name = "convert", .bytes = from.bytes() + half},
          from.ranges);
      bytes -= half;
    }
    last_ = &recorder_.compute({.kind = WorkKind::kGemm, .name = "matmul", .bytes = bytes},
                               tensors.ranges);
    set_gemm({.m = c.dim(0),
              .n = c.dim(1),
              .k = a.dim(transpose_a == Transpose::kYes ? 0 : 1),
              .quantized = rounded_.contains(a.data) && rounded_.contains(b.data),
              .fp32 = !is_bf16});
  }

  StepRecorder& recorder_;
  const ReservedMemory& memory_;
  std::shared_ptr<RecordingQueue> queue_;
  TracedWork* last_ = nullptr;                  // the last work of the computation
  std::set<const void*> rounded_;               // buffers of quantized operands
  std::map<const void*, int64_t> expert_rows_;  // rows by the address of Routing::offsets
};

}  // namespace muster::trainer
