// Models in the format in which Meta publishes Llama: params.json and consolidated.00.pth,
// consolidated.01.pth, …, with one file per tensor-parallel rank of Meta's training. A tensor is
// split along its rows or its columns; norms are complete in every file.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {

constexpr char kMetaParamsFile[] = "params.json";
constexpr char kMetaFirstFile[] = "consolidated.00.pth";

// Opens a folder. Rows of queries and keys are converted to half-split pairs (rotary_rows.h).
// Returns InvalidArgument with the file and the invalid field, tensor or byte, with the missing
// file, or with the tensors that the model does not use (check_unused()). Returns other errors as
// TorchFile does.
absl::StatusOr<std::unique_ptr<ParameterSource>> open_meta(const std::string& folder,
                                                           UnusedTensorPolicy unused);

}  // namespace muster::trainer
