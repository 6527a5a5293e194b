// Devices whose blocks may have less shared memory than those of data centres.
#include "tests/gpu/both_backends.h"
#include "tests/gpu/emulated/cuda_runtime.h"

namespace muster::trainer {
namespace {

// Devices of compute capability 8.6 and 8.9: RTX A6000, L40S.
class SmallDevice : public testing::TestWithParam<AttentionShape> {
 protected:
  static constexpr int kSharedBytes = 99 << 10;
  void SetUp() override { emulated::shared_bytes_max = kSharedBytes; }
  void TearDown() override { emulated::shared_bytes_max = usual_; }

 private:
  const int usual_ = emulated::shared_bytes_max;
};

// Heads of each width that the kernels have, with so many buckets that shared memory holds the sums
// of half, a quarter, or one of a warp's rows.
INSTANTIATE_TEST_SUITE_P(Shapes, SmallDevice,
                         testing::Values(AttentionShape{.batch = 1,
                                                        .seq_len = 130,
                                                        .heads = 2,
                                                        .kv_heads = 1,
                                                        .head_dim = 256,
                                                        .buckets = {32, 128}},
                                         AttentionShape{.batch = 1,
                                                        .seq_len = 130,
                                                        .heads = 1,
                                                        .kv_heads = 1,
                                                        .head_dim = 64,
                                                        .buckets = {128, 200}},
                                         AttentionShape{.batch = 1,
                                                        .seq_len = 70,
                                                        .heads = 1,
                                                        .kv_heads = 1,
                                                        .head_dim = 128,
                                                        .buckets = {64, 100}},
                                         AttentionShape{.batch = 1,
                                                        .seq_len = 150,
                                                        .heads = 1,
                                                        .kv_heads = 1,
                                                        .head_dim = 160,
                                                        .buckets = {256, 300}}),
                         [](const auto& test) {
                           return "head" + std::to_string(test.param.head_dim) + "_buckets" +
                                  std::to_string(test.param.buckets.count);
                         });

TEST_P(SmallDevice, HasRoomForGradientsOfBiases) {
  const AttentionShape& s = GetParam();
  constexpr DType kType = DType::kBf16;
  constexpr int kCpuThreads = 2;  // the number of threads in backends()
  Both qkv = Both::random(kType, {s.rows(), s.qkv_width()}, 1, 2);
  Both bias = Both::random(DType::kF32, {s.heads, s.buckets.count}, 2);
  Both dout = Both::random(kType, {s.rows(), s.out_width()}, 3);
  Both out(kType, {s.rows(), s.out_width()}), lse(DType::kF32, {s.batch, s.heads, s.seq_len});
  Both dqkv(kType, {s.rows(), s.qkv_width()}), dbias(DType::kF32, {s.heads, s.buckets.count});
  Both workspace(DType::kF32, {std::max({cpu_attention_elements(s, kCpuThreads),
                                         cpu_attention_backward_elements(s, kCpuThreads),
                                         cuda_attention_backward_elements(s)})});
  on_both([&](Ops& ops, Side side) {
    ops.attention(s, qkv.on(side), bias.on(side), out.on(side), lse.on(side),
                  workspace.workspace(side));
    ops.attention_backward(s, qkv.on(side), bias.on(side), out.on(side), lse.on(side),
                           dout.on(side), dqkv.on(side), dbias.on(side), Accumulate::kNo,
                           workspace.workspace(side));
  });
  expect_same(dqkv, 4e-2, "dqkv");
  expect_same(dbias, 4e-2, "dbias");
}

}  // namespace
}  // namespace muster::trainer
