// The number of rows for which the head computes logits at a time.
#pragma once

#include <cstdint>

namespace muster::trainer {

// Returns the rows per chunk for `tokens` rows of `batch` sequences with `ids` logits each, so that
// a chunk has about `logits_bytes` of fp32 logits. At least `batch`, which Transformer::extend()
// gathers.
int64_t head_rows(int64_t ids, int64_t tokens, int64_t batch, int64_t logits_bytes);

}  // namespace muster::trainer
