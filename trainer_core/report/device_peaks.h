// The peak throughput of GPUs according to their data sheets: the denominator of the model FLOPs
// utilisation (MFU).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// The peak of a device for an element type.
struct DataSheetPeak {
  std::string device = {};  // "H100 PCIe"
  std::string type = {};    // "bfloat16", "tensorfloat32"
  double tflops = 0;        // TFLOP/s
};

// Returns the peak of a device for the type of the GEMMs in the config's layers. Returns nullopt
// for the CPU, an unknown device, a partition of a device (MIG), or a type without a figure.
// `description` is the backend's, such as "NVIDIA H100 80GB HBM3, compute capability 9.0, …".
//
// The figures are those without sparsity and with accumulation in fp32. The figure of float32 is
// that of TF32; with matmul_precision=highest it is the one without tensor cores.
std::optional<DataSheetPeak> data_sheet_peak(std::string_view description,
                                             const TrainConfig& config);

}  // namespace muster::trainer
