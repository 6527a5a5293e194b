#include "trainer_core/ops/cuda/attention_library.h"

namespace muster::trainer::cuda {
namespace {

// The largest divisor of n below `part`.
int64_t next_divisor(int64_t n, int64_t part) {
  do --part;
  while (n % part != 0);
  return part;
}

// Whether each part's statistics begin where cuDNN takes them, as everything else of it does.
bool begin_aligned(const LibraryAttention& layer, int64_t sequences, int64_t key_heads) {
  constexpr int64_t kFloats = 4;  // 16 bytes
  const int64_t rows = key_heads == layer.kv_heads ? sequences * layer.heads
                                                   : key_heads * (layer.heads / layer.kv_heads);
  return rows * layer.seq_len % kFloats == 0;
}

}  // namespace

LibraryAttention LibraryAttention::part(int64_t sequence, int64_t sequences, int64_t key_head,
                                        int64_t key_heads) const {
  const int64_t group = heads / kv_heads, head = key_head * group;
  LibraryAttention part = *this;
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

LibraryAttentionGradients LibraryAttentionGradients::part(const LibraryAttention& layer,
                                                          int64_t sequence,
                                                          int64_t key_head) const {
  const int64_t first = sequence * layer.seq_len, head = key_head * (layer.heads / layer.kv_heads);
  return {.dout = dout + first * layer.out_width + head * layer.head_dim,
          .dq = dq + first * layer.qkv_width + head * layer.head_dim,
          .dk = dk + first * layer.qkv_width + key_head * layer.head_dim,
          .dv = dv + first * layer.qkv_width + key_head * layer.head_dim};
}

LibraryAnswer in_parts(const LibraryAttention& layer, const AttentionPartRun& run) {
  int64_t sequences = layer.batch, heads = layer.kv_heads;
  LibraryAnswer answer;
  for (;;) {
    const bool whole = sequences == layer.batch && heads == layer.kv_heads;
    if (!whole && !begin_aligned(layer, sequences, heads))
      return answer;  // there is no room for more
    answer = {};
    for (int64_t b = 0; b < layer.batch && answer.is_done(); b += sequences)
      for (int64_t k = 0; k < layer.kv_heads && answer.is_done(); k += heads)
        answer = run(layer.part(b, sequences, k, heads), b, k);
    if (answer.kind != LibraryAnswer::Kind::kNoRoom) return answer;
    if (sequences > 1) {
      sequences = next_divisor(layer.batch, sequences);
    } else if (heads > 1) {
      heads = next_divisor(layer.kv_heads, heads);
    } else {
      return answer;
    }
  }
}

}  // namespace muster::trainer::cuda
