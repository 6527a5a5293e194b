// Which tokens of the batch a rank of a mesh has. Pure arithmetic: data, expert and fsdp give it whole sequences, and what is here
// says how those are shared among the ranks that have the same ones.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer_core/model/rank_part.h"
#include "trainer_core/ops/token_rows.h"

namespace muster::trainer {

// Context parallelism: of 2C chunks of a sequence rank c has chunks c and 2C - 1 - c, so that causal attention costs all ranks alike
// (Llama 3, 2024, section 3.3.2; Megatron Core's context parallelism). 2C divides the sequence's length.
Positions context_positions(int64_t seq_len, AxisPlace context);

// The sequence axis: the positions of a context rank, in the order of their rows, in equal contiguous parts. `ranks` divides them.
Positions sequence_positions(const Positions& of_context, AxisPlace sequence);

// Tensor parallelism between products (Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022):
// the rows of `batch` sequences of these positions in equal contiguous parts. `ranks` divides them.
TokenRows tensor_rows(int64_t batch, const Positions& positions, AxisPlace tensor);

// Rows of several ranks, gathered one rank after another, `count` of each, as the tokens of whole sequences: element b S + i is the
// gathered row that is position i of sequence b. Together they have every position once.
std::vector<int32_t> gathered_order(int64_t batch, int64_t seq_len,
                                    const std::vector<TokenRows>& ranks, int64_t count);

}  // namespace muster::trainer
