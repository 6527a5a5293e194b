#include "trainer_core/report/device_peaks.h"

#include <algorithm>
#include <vector>

#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"

namespace muster::trainer {
namespace {

struct Row {
  std::string_view device;  // words that the name of the device must contain
  // In TFLOP/s or TOP/s; 0: the device does not have the type. fp32 is without tensor cores.
  double fp32, tf32, bf16, fp8, int8;
};

// A row must precede rows with a subset of its words. If a data sheet states figures with sparsity,
// the table has half of them. Sources, all by NVIDIA:
//   B200, GB200      "NVIDIA Blackwell Architecture Technical Brief"
//   H100, H100 NVL   "NVIDIA H100 Tensor Core GPU" data sheet; PCIe: "NVIDIA H100 Tensor Core GPU
//                    Architecture" white paper, table 2
//   H200, H200 NVL   "NVIDIA H200 Tensor Core GPU" data sheet
//   GH200            "NVIDIA GH200 Grace Hopper Superchip" data sheet
//   A100             "NVIDIA A100 Tensor Core GPU" data sheet; A30, A10, A40: their data sheets
//   L4, L40, L40S    their data sheets
//   RTX              "NVIDIA Ada GPU Architecture" and "NVIDIA Ampere GA102 GPU Architecture" white
//                    papers, with fp32 accumulation
constexpr Row kRows[] = {
    {"GB200", 80, 1250, 2500, 5000, 5000},   {"B200", 80, 1125, 2250, 4500, 4500},
    {"GH200", 67, 494.7, 989, 1979, 1979},   {"H200 NVL", 60, 417.5, 835, 1671, 1671},
    {"H200", 67, 494.7, 989, 1979, 1979},    {"H100 NVL", 60, 417.5, 835, 1671, 1671},
    {"H100 PCIe", 51, 378, 756, 1513, 1513}, {"H100", 67, 494.7, 989, 1979, 1979},
    {"A100", 19.5, 156, 312, 0, 624},        {"A40", 37.4, 74.8, 149.7, 0, 299.3},
    {"A30", 10.3, 82, 165, 0, 330},          {"A10", 31.2, 62.5, 125, 0, 250},
    {"L40S", 91.6, 183, 362, 733, 733},      {"L40", 90.5, 90.5, 181, 362, 362},
    {"L4", 30.3, 60, 121, 242, 242},         {"RTX 4090", 82.6, 82.6, 165.2, 330.3, 660.6},
    {"RTX 3090", 35.6, 35.6, 71, 0, 284},
};

std::vector<absl::string_view> words_of(std::string_view text) {
  return absl::StrSplit(av(text), absl::ByAnyChar(" -"), absl::SkipEmpty());
}

}  // namespace

std::optional<DataSheetPeak> data_sheet_peak(std::string_view description,
                                             const TrainConfig& config) {
  const std::vector<absl::string_view> name =
      words_of(description.substr(0, description.find(',')));
  const auto has = [&](absl::string_view word) { return std::ranges::count(name, word) > 0; };
  if (!has("NVIDIA") || has("MIG")) return std::nullopt;
  const auto* const row = std::ranges::find_if(
      kRows, [&](const Row& r) { return std::ranges::all_of(words_of(r.device), has); });
  if (row == std::end(kRows)) return std::nullopt;
  DataSheetPeak peak{.device = std::string(row->device)};
  switch (config.model.quantization.type) {
    case QuantizationType::kInt8:
      peak.type = "int8";
      peak.tflops = row->int8;
      break;
    case QuantizationType::kFp8Delayed:
    case QuantizationType::kFp8Current:
      peak.type = "fp8";
      peak.tflops = row->fp8;
      break;
    case QuantizationType::kNone:
      if (config.dtype == ComputeType::kBfloat16) {
        peak.type = "bfloat16";
        peak.tflops = row->bf16;
      } else if (config.allows_tf32()) {
        peak.type = "tensorfloat32";
        peak.tflops = row->tf32;
      } else {
        peak.type = "float32";
        peak.tflops = row->fp32;
      }
      break;
  }
  if (peak.tflops == 0) return std::nullopt;
  return peak;
}

}  // namespace muster::trainer
