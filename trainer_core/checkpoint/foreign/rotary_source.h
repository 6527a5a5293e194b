// Reads parameters that were stored with one layout of RoPE's pairs (rotary_rows.h) as those of the
// same model with the other layout.
#pragma once

#include <memory>

#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {

struct Adapters;

// Returns a source whose queries and keys have the layout of `position_type`, and whose notes have
// a line about the conversion. Other tensors are read from `source` unchanged. Returns `source`
// itself if it already has this layout, or if `source` or `position_type` has no RoPE.
std::unique_ptr<ParameterSource> with_rotary_layout(std::unique_ptr<ParameterSource> source,
                                                    PositionType position_type);
// Reorders the matrices B of queries and keys in the same way.
void reorder_rotary_rows(Adapters& adapters, PositionType position_type);

}  // namespace muster::trainer
