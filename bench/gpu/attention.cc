// Measures causal attention, forward and backward, over whole sequences, with windows and over
// packed documents: by the backend's default path (cuDNN if it is found and supports the shape) and
// by built-in kernels. FLOPs count only the scores of positions that attend to each other.
#include <algorithm>
#include <array>
#include <vector>

#include "bench/gpu/gpu_bench.h"
#include "trainer_core/ops/cuda/device/cuda.h"
#include "trainer_core/ops/workspace.h"

namespace muster::bench {
namespace {

using trainer::Accumulate;
using trainer::AttentionShape;
using trainer::DType;
using trainer::Tensor;

struct Layer {
  AttentionShape shape;
  int64_t document = 0;  // length of packed documents; 0: whole sequences
};
constexpr std::array kLayers = {
    Layer{{.batch = 4, .seq_len = 2048, .heads = 32, .kv_heads = 32, .head_dim = 128}},
    Layer{{.batch = 2, .seq_len = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128}},
    Layer{{.batch = 1, .seq_len = 8192, .heads = 32, .kv_heads = 8, .head_dim = 128}},
    Layer{
        {.batch = 2, .seq_len = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128, .window = 1024}},
    Layer{{.batch = 4, .seq_len = 2048, .heads = 16, .kv_heads = 16, .head_dim = 64}},
    Layer{{.batch = 2, .seq_len = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128}, 1024},
    Layer{{.batch = 2, .seq_len = 4096, .heads = 8, .kv_heads = 4, .head_dim = 256}, 1024},
};

// Returns the number of scores per head and sequence: for each position, those in its document and
// window.
double scores(const Layer& layer) {
  const int64_t length = layer.document > 0 ? layer.document : layer.shape.seq_len;
  const int64_t seen = layer.shape.window > 0 ? std::min(layer.shape.window, length) : length;
  const auto all = static_cast<double>(length), window = static_cast<double>(seen);
  return static_cast<double>(layer.shape.seq_len / length) *
         (window * all - window * (window - 1) / 2);
}

}  // namespace

void measure_attention(const Bench& bench) {
  trainer::Ops& ops = bench.device.ops();
  const auto own = trainer::cuda_ops({.algorithms_path = {}, .use_libraries = false});
  for (Layer layer : kLayers) {
    AttentionShape& shape = layer.shape;
    if (bench.small) {
      shape.seq_len /= 64, shape.window /= 64, layer.document /= 64;
      shape.heads = std::max<int64_t>(1, shape.heads / 16);
      shape.kv_heads = std::max<int64_t>(1, shape.kv_heads / 16);
    }
    const auto room = [&](int64_t elements, size_t each) {
      return bench.device.memory().allocate(static_cast<size_t>(elements) * each);
    };
    const int64_t tokens = shape.rows(), sums = shape.batch * shape.heads * shape.seq_len;
    const int64_t workspace = std::max<int64_t>(1, cuda_attention_backward_elements(shape));
    const auto qkv = room(tokens * shape.qkv_width(), 2),
               dqkv = room(tokens * shape.qkv_width(), 2);
    const auto out = room(tokens * shape.out_width(), 2),
               dout = room(tokens * shape.out_width(), 2);
    const auto lse = room(sums, 4), scratch = room(workspace, 4), starts = room(tokens, 4);
    if (layer.document > 0) {
      std::vector<int32_t> begins;
      for (int64_t row = 0; row < tokens; ++row)
        begins.push_back(
            static_cast<int32_t>(row % shape.seq_len / layer.document * layer.document));
      bench.device.memory().upload(begins.data(), starts.get(), begins.size() * sizeof(int32_t));
      shape.starts = Tensor::i32(static_cast<int32_t*>(starts.get()), {shape.batch, shape.seq_len});
    }
    const auto wide = [&](const std::shared_ptr<void>& data, int64_t width) {
      return Tensor::of(DType::kBf16, data.get(), {tokens, width});
    };
    const Tensor in = wide(qkv, shape.qkv_width()), result = wide(out, shape.out_width());
    const Tensor denominators =
        Tensor::f32(static_cast<float*>(lse.get()), {shape.batch, shape.heads, shape.seq_len});
    const trainer::Workspace scratch_memory{static_cast<float*>(scratch.get()), workspace};
    fill_random(bench.device, in);
    fill_random(bench.device, wide(dout, shape.out_width()));
    // The forward pass has two GEMMs; the backward pass four, plus the recomputed scores.
    const double product =
        2 * static_cast<double>(shape.batch * shape.heads * shape.head_dim) * scores(layer) * 1e-12;
    Json row = {{"dtype", "bfloat16"},        {"batch", shape.batch},
                {"seq_len", shape.seq_len},   {"heads", shape.heads},
                {"kv_heads", shape.kv_heads}, {"head_dim", shape.head_dim},
                {"window", shape.window},     {"document", layer.document}};
    const auto measure = [&](trainer::Ops& by, const std::string& whose) {
      const auto wait = [&] { by.synchronize(); };
      const double forward = seconds_of(
          [&] { by.attention(shape, in, {}, result, denominators, scratch_memory); }, wait);
      const double backward = seconds_of(
          [&] {
            by.attention_backward(shape, in, {}, result, denominators,
                                  wide(dout, shape.out_width()), wide(dqkv, shape.qkv_width()), {},
                                  Accumulate::kNo, scratch_memory);
          },
          wait);
      row[whose + "forward_ms"] = forward * 1e3;
      row[whose + "forward_tflops"] = 2 * product / forward;
      row[whose + "backward_ms"] = backward * 1e3;
      row[whose + "backward_tflops"] = 5 * product / backward;
    };
    measure(ops, "");
    measure(*own, "own_kernels_");
    bench.report(std::move(row));
  }
}

}  // namespace muster::bench
