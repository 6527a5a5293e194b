// Attention over whole sequences whose rows have the alignment that cuDNN requires, as in
// trainings. On a device with cuDNN, cuDNN computes it, whole and in parts. Prints notes on what
// built-in kernels computed instead.
#include <iostream>

#include "tests/gpu/both_backends.h"

namespace muster::trainer {
namespace {

std::vector<AttentionShape> shapes() {
  std::vector<AttentionShape> all = {
      {.batch = 2, .seq_len = 64, .heads = 4, .kv_heads = 2, .head_dim = 64},
      {.batch = 1, .seq_len = 128, .heads = 2, .kv_heads = 2, .head_dim = 128, .window = 32},
      {.batch = 1, .seq_len = 40, .heads = 2, .kv_heads = 1, .head_dim = 256}};
  if (large_shapes()) {
    all.push_back({.batch = 4, .seq_len = 2048, .heads = 16, .kv_heads = 4, .head_dim = 128});
    all.push_back(
        {.batch = 2, .seq_len = 1536, .heads = 8, .kv_heads = 8, .head_dim = 64, .window = 512});
    all.push_back({.batch = 1, .seq_len = 1000, .heads = 8, .kv_heads = 1, .head_dim = 256});
  }
  return all;
}

class LibrarysAttention : public testing::TestWithParam<std::tuple<AttentionShape, bool>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, LibrarysAttention,
                         testing::Combine(testing::ValuesIn(shapes()), testing::Bool()));

TEST_P(LibrarysAttention, ForwardAndBackward) {
  const auto& [s, in_parts] = GetParam();
  if (is_sanitized() && in_parts) GTEST_SKIP() << "built-in kernels compute no parts";
  // In parts: with scratch for the smallest part, the queries of one key head in one sequence.
  const size_t part = cudnn_attention_backward_bytes(smallest_attention_part(s));
  const auto own = in_parts ? cuda_ops({.scratch_bytes = part, .algorithms_path = {}}) : nullptr;
  Both qkv = Both::random(DType::kBf16, {s.rows(), s.qkv_width()}, 1, 2);
  Both out(DType::kBf16, {s.rows(), s.out_width()}),
      lse(DType::kF32, {s.batch, s.heads, s.seq_len});
  Both dout = Both::random(DType::kBf16, {s.rows(), s.out_width()}, 2);
  Both dqkv(DType::kBf16, {s.rows(), s.qkv_width()});
  constexpr int kCpuThreads = 2;
  Both workspace(DType::kF32, {std::max(cpu_attention_elements(s, kCpuThreads),
                                        cpu_attention_backward_elements(s, kCpuThreads))});
  on_both([&](Ops& of_both, Side side) {
    Ops& ops = side == Side::kGpu && own != nullptr ? *own : of_both;
    ops.attention(s, qkv.on(side), {}, out.on(side), lse.on(side), workspace.workspace(side));
    ops.attention_backward(s, qkv.on(side), {}, out.on(side), lse.on(side), dout.on(side),
                           dqkv.on(side), {}, Accumulate::kNo, workspace.workspace(side));
    ops.synchronize();
    for (const std::string& note : ops.take_notes()) std::cout << note << std::endl;
  });
  // The CPU rounds probabilities and dS to bf16 if it has instructions for that.
  expect_same(out, 2e-2, "out");
  expect_same(lse, 1e-3, "lse");
  expect_same(dqkv, 4e-2, "dqkv");
}

}  // namespace
}  // namespace muster::trainer
