// Models in Meta's format for Llama: params.json and consolidated.00.pth, consolidated.01.pth, …,
// one file per tensor-parallel rank of the training. A tensor is split along its rows or its
// columns; norms are in every file.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {

constexpr char kMetaParamsFile[] = "params.json";
constexpr char kMetaFirstFile[] = "consolidated.00.pth";

// InvalidArgument names the file and the invalid field, tensor or byte, the missing file, or the
// tensors that the model does not use (check_unused()); other errors as of TorchFile. Rows of
// queries and keys are read as half-split pairs (rotary_rows.h).
absl::StatusOr<std::unique_ptr<ParameterSource>> open_meta(const std::string& folder,
                                                           UnusedTensors unused);

}  // namespace muster::trainer
