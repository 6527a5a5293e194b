// In how many rows the head makes logits at a time.
#pragma once

#include <cstdint>

namespace muster::trainer {

// Of `tokens` rows of a batch's sequences with logits of `ids` each, of which about `logits_bytes` are kept; at least `batch`, which
// Transformer::extend() gathers.
int64_t head_rows(int64_t ids, int64_t tokens, int64_t batch, int64_t logits_bytes);

}  // namespace muster::trainer
