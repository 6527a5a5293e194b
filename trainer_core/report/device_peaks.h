// The data sheets' peak throughput of GPUs, the denominator of model FLOPs utilisation (MFU).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

struct DataSheetPeak {
  std::string device = {};  // "H100 PCIe"
  std::string type = {};    // "bfloat16", "tensorfloat32"
  double tflops = 0;
};

// Returns the peak of the device for the type of the config's layer GEMMs; nullopt for the CPU, an
// unknown device, a part of one (MIG), or a type without a figure. `description`: that of the
// backend, "NVIDIA H100 80GB HBM3, compute capability 9.0, …".
//
// The figures are those without sparsity, of matrix units that accumulate in fp32. float32 has
// TF32's figure, or with matmul_precision=highest the one without tensor cores.
std::optional<DataSheetPeak> data_sheet_peak(std::string_view description,
                                             const TrainConfig& config);

}  // namespace muster::trainer
