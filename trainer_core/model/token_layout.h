// The tokens of a batch that a rank of a mesh has. Pure arithmetic. The data, fsdp and expert axes
// divide a batch into complete sequences; the functions below divide the tokens of these sequences
// among the ranks that have the same sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer_core/model/rank_part.h"
#include "trainer_core/ops/token_rows.h"

namespace muster::trainer {

// Returns the positions of a rank of context parallelism. A sequence is divided into 2C chunks for
// C ranks, and rank c has the chunks c and 2C - 1 - c. So causal attention takes the same time on
// all ranks (Llama 3, 2024, section 3.3.2; context parallelism in Megatron Core). Requires that 2C
// divides seq_len.
Positions context_positions(int64_t seq_len, AxisCoordinate context);

// Returns the positions of a rank along the sequence axis, which divides the positions of a context
// rank into equal contiguous parts. Requires that sequence.ranks divides their number.
Positions sequence_positions(const Positions& of_context, AxisCoordinate sequence);

// Returns the rows of the residual stream of a rank along the tensor axis, which divides the rows
// of `batch` sequences with these positions into equal contiguous parts (Korthikanti et al.,
// "Reducing activation recomputation in large transformer models", 2022). Requires that
// tensor.ranks divides their number.
TokenRows tensor_rows(int64_t batch, const Positions& positions, AxisCoordinate tensor);

// Returns the order of rows that are gathered rank after rank, `count` rows of each rank: element b
// * seq_len + i is the index of the gathered row that has position i of sequence b. Requires that
// the ranks together have every position of every sequence exactly once.
std::vector<int32_t> gathered_order(int64_t batch, int64_t seq_len,
                                    const std::vector<TokenRows>& ranks, int64_t count);

}  // namespace muster::trainer
