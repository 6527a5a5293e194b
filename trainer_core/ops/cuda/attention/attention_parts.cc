#include <optional>

#include "trainer_core/ops/cuda/attention/attention_library.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer::cuda {
namespace {

// Returns whether the statistics of every part begin at the alignment that cuDNN requires; the
// other tensors of a part always do.
bool begin_aligned(const LibraryAttentionArgs& layer, const AttentionPart& part) {
  constexpr int64_t kFloats = 4;  // 16 bytes
  const int64_t rows = part.key_heads == layer.kv_heads
                           ? part.sequences * layer.heads
                           : part.key_heads * (layer.heads / layer.kv_heads);
  return rows * layer.seq_len % kFloats == 0;
}

}  // namespace

LibraryAttentionArgs LibraryAttentionArgs::part(int64_t sequence, int64_t sequences,
                                                int64_t key_head, int64_t key_heads) const {
  const int64_t group = heads / kv_heads, head = key_head * group;
  LibraryAttentionArgs part = *this;
  part.batch = sequences;
  part.heads = key_heads * group;
  part.kv_heads = key_heads;
  part.q += sequence * seq_len * qkv_width + head * head_dim;
  part.k += sequence * seq_len * qkv_width + key_head * head_dim;
  part.v += sequence * seq_len * qkv_width + key_head * head_dim;
  part.out += sequence * seq_len * out_width + head * head_dim;
  part.lse += (sequence * heads + head) * seq_len;
  return part;
}

LibraryAttentionGradients LibraryAttentionGradients::part(const LibraryAttentionArgs& layer,
                                                          int64_t sequence,
                                                          int64_t key_head) const {
  const int64_t first = sequence * layer.seq_len, head = key_head * (layer.heads / layer.kv_heads);
  return {.dout = dout + first * layer.out_width + head * layer.head_dim,
          .dq = dq + first * layer.qkv_width + head * layer.head_dim,
          .dk = dk + first * layer.qkv_width + key_head * layer.head_dim,
          .dv = dv + first * layer.qkv_width + key_head * layer.head_dim};
}

LibraryAnswer in_parts(const LibraryAttentionArgs& layer, const AttentionPartRun& run) {
  const AttentionPart whole{layer.batch, layer.kv_heads};
  LibraryAnswer answer;
  for (std::optional part = whole; part; part = smaller_part(whole, *part)) {
    const auto [sequences, heads] = *part;
    const bool is_whole = sequences == whole.sequences && heads == whole.key_heads;
    // The larger parts had no room.
    if (!is_whole && !begin_aligned(layer, *part)) return answer;
    answer = {};
    for (int64_t b = 0; b < layer.batch && answer.is_done(); b += sequences)
      for (int64_t k = 0; k < layer.kv_heads && answer.is_done(); k += heads)
        answer = run(layer.part(b, sequences, k, heads), b, k);
    if (answer.kind != LibraryAnswer::Kind::kNoRoom) return answer;
  }
  return answer;
}

}  // namespace muster::trainer::cuda
