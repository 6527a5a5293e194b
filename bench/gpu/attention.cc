// Causal attention, forward and backward: the backend's own way (cuDNN where it is found) beside its own kernels. FLOPs are those of the scores that a position sees.
#include <array>

#include "bench/gpu/gpu_bench.h"
#include "trainer_core/ops/cuda/cuda.h"
#include "trainer_core/ops/workspace.h"

namespace muster::bench {
namespace {

using trainer::Accumulate;
using trainer::AttentionShape;
using trainer::DType;
using trainer::Tensor;

constexpr std::array kShapes = {
    AttentionShape{.batch = 4, .seq_len = 2048, .heads = 32, .kv_heads = 32, .head_dim = 128},
    AttentionShape{.batch = 2, .seq_len = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128},
    AttentionShape{.batch = 1, .seq_len = 8192, .heads = 32, .kv_heads = 8, .head_dim = 128},
    AttentionShape{
        .batch = 2, .seq_len = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .window = 1024},
    AttentionShape{.batch = 4, .seq_len = 2048, .heads = 16, .kv_heads = 16, .head_dim = 64},
};

// Scores of a head and sequence: of each position those in its window.
double scores(const AttentionShape& shape) {
  const auto length = static_cast<double>(shape.seq_len);
  const double window = shape.window > 0 ? static_cast<double>(shape.window) : length;
  return window * length - window * (window - 1) / 2;
}

}  // namespace

Json measure_attention(const Bench& bench) {
  trainer::Ops& ops = bench.device.ops();
  const auto own = trainer::cuda_ops({.algorithms_path = {}, .use_libraries = false});
  Json rows = Json::array();
  for (AttentionShape shape : kShapes) {
    if (bench.small) shape.seq_len /= 64, shape.window /= 64, shape.heads /= 8, shape.kv_heads /= 8;
    const auto room = [&](int64_t elements, size_t each) {
      return bench.device.memory().allocate(static_cast<size_t>(elements) * each);
    };
    const int64_t tokens = shape.rows(), sums = shape.batch * shape.heads * shape.seq_len;
    const int64_t workspace = std::max<int64_t>(1, cuda_attention_backward_elements(shape));
    const auto qkv = room(tokens * shape.qkv_width(), 2),
               dqkv = room(tokens * shape.qkv_width(), 2);
    const auto out = room(tokens * shape.out_width(), 2),
               dout = room(tokens * shape.out_width(), 2);
    const auto lse = room(sums, 4), scratch = room(workspace, 4);
    const auto wide = [&](const std::shared_ptr<void>& data, int64_t width) {
      return Tensor::of(DType::kBf16, data.get(), {tokens, width});
    };
    const Tensor in = wide(qkv, shape.qkv_width()), result = wide(out, shape.out_width());
    const Tensor denominators =
        Tensor::f32(static_cast<float*>(lse.get()), {shape.batch, shape.heads, shape.seq_len});
    const trainer::Workspace place{static_cast<float*>(scratch.get()), workspace};
    fill_random(bench.device, in);
    fill_random(bench.device, wide(dout, shape.out_width()));
    // Two products forward; backward four, and that of the scores once more.
    const double product =
        2 * static_cast<double>(shape.batch * shape.heads * shape.head_dim) * scores(shape) * 1e-12;
    Json row = {{"dtype", "bfloat16"},   {"batch", shape.batch},       {"seq_len", shape.seq_len},
                {"heads", shape.heads},  {"kv_heads", shape.kv_heads}, {"head_dim", shape.head_dim},
                {"window", shape.window}};
    const auto measure = [&](trainer::Ops& by, const std::string& whose) {
      const auto wait = [&] { by.synchronize(); };
      const double forward =
          seconds_of([&] { by.attention(shape, in, {}, result, denominators, place); }, wait);
      const double backward = seconds_of(
          [&] {
            by.attention_backward(shape, in, {}, result, denominators,
                                  wide(dout, shape.out_width()), wide(dqkv, shape.qkv_width()), {},
                                  Accumulate::kNo, place);
          },
          wait);
      row[whose + "forward_ms"] = forward * 1e3;
      row[whose + "forward_tflops"] = 2 * product / forward;
      row[whose + "backward_ms"] = backward * 1e3;
      row[whose + "backward_tflops"] = 5 * product / backward;
    };
    measure(ops, "");
    measure(*own, "own_kernels_");
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace muster::bench
