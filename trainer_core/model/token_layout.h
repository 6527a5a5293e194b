// The tokens of the batch that a rank of a mesh has. Pure arithmetic: data, expert and fsdp assign
// whole sequences to a rank; the functions below divide them among the ranks that have the same
// sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer_core/model/rank_part.h"
#include "trainer_core/ops/token_rows.h"

namespace muster::trainer {

// Context parallelism: of 2C chunks of a sequence rank c has chunks c and 2C - 1 - c, so that
// causal attention costs all ranks alike (Llama 3, 2024, section 3.3.2; Megatron Core's context
// parallelism). Requires: 2C divides the sequence's length.
Positions context_positions(int64_t seq_len, AxisCoordinate context);

// The sequence axis: the positions of a context rank, in row order, in equal contiguous parts.
// Requires: `ranks` divides them.
Positions sequence_positions(const Positions& of_context, AxisCoordinate sequence);

// Tensor parallelism between GEMMs (Korthikanti et al., "Reducing activation recomputation in large
// transformer models", 2022): the rows of `batch` sequences of these positions in equal contiguous
// parts. Requires: `ranks` divides them.
TokenRows tensor_rows(int64_t batch, const Positions& positions, AxisCoordinate tensor);

// Maps rows that are gathered rank after rank, `count` of each, to the tokens of whole sequences:
// element b S + i is the gathered row of position i of sequence b. Requires: together the ranks
// have every position once.
std::vector<int32_t> gathered_order(int64_t batch, int64_t seq_len,
                                    const std::vector<TokenRows>& ranks, int64_t count);

}  // namespace muster::trainer
