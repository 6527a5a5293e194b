// Conversion between the two layouts of RoPE's pairs among the rows of a query or key projection
// (Su et al., "RoFormer", 2021). Interleaved: rows 2i and 2i + 1 of a head form a pair (RoFormer,
// Meta, Pax). Half-split: rows i and i + h/2 of a head form a pair (GPT-NeoX, Hugging Face,
// MaxText). The reordering of the rows does not change the result of attention.
#pragma once

#include <cstdint>
#include <span>

namespace muster::trainer {

// Converts a matrix (heads * head_dim, columns) from interleaved to half-split, in place. Requires
// an even head_dim and complete heads.
void split_rotary_pairs(std::span<float> rows, int64_t head_dim, int64_t columns);
// Converts from half-split to interleaved, in place, with the same requirements.
void join_rotary_pairs(std::span<float> rows, int64_t head_dim, int64_t columns);

}  // namespace muster::trainer
