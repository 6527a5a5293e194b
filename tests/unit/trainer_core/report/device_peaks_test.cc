#include "trainer_core/report/device_peaks.h"

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

double peak_of(std::string_view name, ComputeType dtype,
               QuantizationType quantization = QuantizationType::kNone,
               MatmulPrecision precision = MatmulPrecision::kHighest) {
  TrainConfig config;
  config.dtype = dtype;
  config.matmul_precision = precision;
  config.model.quantization.type = quantization;
  const auto peak = data_sheet_peak(name, config);
  return peak ? peak->tflops : 0;
}

// The names are those that NVML reports.
TEST(DataSheetPeak, DependsOnDeviceFormAndType) {
  constexpr auto kBf16 = ComputeType::kBfloat16, kFp32 = ComputeType::kFloat32;
  EXPECT_EQ(peak_of("NVIDIA H100 80GB HBM3, compute capability 9.0", kBf16), 989);
  EXPECT_EQ(peak_of("NVIDIA H100 80GB HBM3", kBf16, QuantizationType::kFp8Delayed), 1979);
  EXPECT_EQ(peak_of("NVIDIA H100 80GB HBM3", kBf16, QuantizationType::kInt8), 1979);
  EXPECT_EQ(peak_of("NVIDIA H100 80GB HBM3", kFp32), 67);
  EXPECT_EQ(peak_of("NVIDIA H100 PCIe", kBf16), 756);
  EXPECT_EQ(peak_of("NVIDIA H100 NVL", kBf16), 835);
  EXPECT_EQ(peak_of("NVIDIA H200", kBf16, QuantizationType::kFp8Current), 1979);
  EXPECT_EQ(peak_of("NVIDIA GH200 480GB", kBf16), 989);
  EXPECT_EQ(peak_of("NVIDIA A100-SXM4-80GB", kBf16), 312);
  EXPECT_EQ(peak_of("NVIDIA A100 80GB PCIe", kFp32), 19.5);
  EXPECT_EQ(peak_of("NVIDIA L4", kBf16), 121);
  EXPECT_EQ(peak_of("NVIDIA L40S", kBf16), 362);
  EXPECT_EQ(peak_of("NVIDIA GB200", kBf16), 2500);
}

// matmul_precision selects among the figures of float32 and no others.
TEST(DataSheetPeak, OfFloat32DependsOnMatmulPrecision) {
  for (const auto tf32 : {MatmulPrecision::kDefault, MatmulPrecision::kHigh}) {
    const auto peak = [&](std::string_view name, ComputeType dtype = ComputeType::kFloat32) {
      return peak_of(name, dtype, QuantizationType::kNone, tf32);
    };
    EXPECT_EQ(peak("NVIDIA H100 80GB HBM3"), 494.7);
    EXPECT_EQ(peak("NVIDIA H200"), 494.7);
    EXPECT_EQ(peak("NVIDIA A100-SXM4-80GB"), 156);
    EXPECT_EQ(peak("NVIDIA H200", ComputeType::kBfloat16), 989);
    TrainConfig config;
    config.matmul_precision = tf32;
    EXPECT_EQ(data_sheet_peak("NVIDIA H200", config)->type, "tensorfloat32");
  }
  TrainConfig highest;
  highest.matmul_precision = MatmulPrecision::kHighest;
  EXPECT_EQ(data_sheet_peak("NVIDIA H200", highest)->type, "float32");
}

TEST(DataSheetPeak, IsUnknownForOtherDevicesPartsAndTypes) {
  EXPECT_EQ(peak_of("CPU, 8 threads", ComputeType::kBfloat16), 0);
  EXPECT_EQ(peak_of("NVIDIA H100 80GB HBM3 MIG 1g.10gb", ComputeType::kBfloat16), 0);
  EXPECT_EQ(peak_of("NVIDIA A10G", ComputeType::kBfloat16), 0) << "is no A10";
  EXPECT_EQ(peak_of("NVIDIA A100-SXM4-80GB", ComputeType::kBfloat16, QuantizationType::kFp8Delayed),
            0)
      << "A100 has no fp8";
}

}  // namespace
}  // namespace muster::trainer
