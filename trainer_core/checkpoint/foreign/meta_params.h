// Meta's params.json, which describes the model of a folder of consolidated.NN.pth.
#pragma once

#include <cstdint>

#include <absl/status/status.h>
#include <nlohmann/json.hpp>

#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {

// Sets the model, max_position and notes of `description`. `vocab_rows` is the number of rows of
// the head over all files. Returns InvalidArgument, without the path, with the first field that is
// wrong or unknown.
absl::Status read_meta_params(const nlohmann::json& params, int64_t vocab_rows,
                              ParameterDescription& description);

}  // namespace muster::trainer
