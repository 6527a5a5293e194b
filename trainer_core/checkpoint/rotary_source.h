// Stored parameters of a model with one layout of RoPE's pairs (rotary_rows.h), read as those of
// the same model with the other layout.
#pragma once

#include <memory>

#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {

// Returns a source whose queries and keys have the layout of `position_type`, with a line about it
// in its notes. Returns `source` itself if it has that layout, or if one of the two models has no
// RoPE. Reads of other tensors go to `source` unchanged.
std::unique_ptr<ParameterSource> with_rotary_layout(std::unique_ptr<ParameterSource> source,
                                                    PositionType position_type);

}  // namespace muster::trainer
