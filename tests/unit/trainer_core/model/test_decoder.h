// Decodes several sequences that grow by the same number of tokens, for tests of models.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer_core/model/plan_builder.h"
#include "trainer_core/model/transformer.h"

namespace muster::trainer {

// The size of a cache for `sequences` sequences of `capacity` tokens.
inline CacheSize cache_for(int32_t sequences, int32_t capacity) {
  return {.capacity = capacity,
          .sequences = sequences,
          .blocks = sequences * CacheSize::blocks_of(capacity)};
}

// Requires a plan of a cache_for(sequences, …).
class TestDecoder {
 public:
  TestDecoder(const TransformerPlan& plan, Arena& arena, Ops& ops)
      : plan_(plan), model(plan, arena, ops) {
    // The blocks of a sequence are neither adjacent nor in order.
    const int32_t sequences = plan.cache.sequences, each = plan.cache.blocks_per_sequence();
    for (int32_t b = 0; b < sequences; ++b) {
      for (int32_t i = 0; i < each; ++i) blocks_.push_back((each - 1 - i) * sequences + b);
    }
  }

  // Appends `tokens` (B, C), and writes the logits after the last token of each sequence to `out`
  // (B, V).
  void extend(std::span<const int32_t> tokens, float* out) {
    const auto count = static_cast<int32_t>(tokens.size()) / plan_.cache.sequences;
    std::vector<int32_t> sequences, positions, last;
    for (int32_t b = 0; b < plan_.cache.sequences; ++b) {
      for (int32_t i = 0; i < count; ++i) {
        sequences.push_back(b);
        positions.push_back(length_ + i);
      }
      last.push_back((b + 1) * count - 1);
    }
    model.decode({tokens, sequences, positions, blocks_});
    model.row_logits(last, out);
    length_ += count;
  }
  int32_t length() const { return length_; }

 private:
  const TransformerPlan& plan_;
  std::vector<int32_t> blocks_;
  int32_t length_ = 0;

 public:
  Transformer model;
};

}  // namespace muster::trainer
