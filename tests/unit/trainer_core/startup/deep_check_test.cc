#include "trainer_core/startup/deep_check.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "trainer_core/ops/backend.h"

namespace muster::trainer {
namespace {

// The CPU's operations, with one wrong element in each GEMM.
class WrongOps final : public Ops {
 public:
  explicit WrongOps(Ops& inner) : inner_(inner) {}

  std::string_view name() const override { return "wrong"; }
  void upload(const void* from, const Tensor& to) override { inner_.upload(from, to); }
  void download(const Tensor& from, void* to) override { inner_.download(from, to); }
  void synchronize() override { inner_.synchronize(); }
  std::shared_ptr<DeviceQueue> queue() override { return inner_.queue(); }
  void matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
              const Tensor& c, Accumulate accumulate) override {
    inner_.matmul(a, transpose_a, b, transpose_b, c, accumulate);
    c.f32()[c.elements() - 1] += 1;
  }
  void fused_matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
                    const Tensor& c, const Epilogue& epilogue) override {
    inner_.fused_matmul(a, transpose_a, b, transpose_b, c, epilogue);
  }

 private:
#define MUSTER_OP(result, name, parameters, arguments) \
  result do_##name parameters override { return inner_.name arguments; }
#include "trainer_core/ops/op_table.inc"

  Ops& inner_;
};

class WrongBackend final : public Backend {
 public:
  WrongBackend() : inner_(cpu_backend(1)), ops_(inner_->ops()) {}

  Ops& ops() override { return ops_; }
  const DeviceMemory& memory() const override { return inner_->memory(); }
  int threads() const override { return inner_->threads(); }
  std::string description() const override { return inner_->description(); }

 private:
  std::shared_ptr<Backend> inner_;
  WrongOps ops_;
};

std::vector<std::string> names_of(const DeepMeasurements& measured) {
  std::vector<std::string> names;
  for (const DeepMeasurement& one : measured) {
    EXPECT_GT(one.value, 0) << one.name;
    names.push_back(one.name);
  }
  return names;
}

TEST(DeepCheckTest, AHealthyDevicePasses) {
  DeepMeasurements measured;
  const auto backend = cpu_backend(1);
  EXPECT_TRUE(test_device(*backend, 0.05, measured).ok());
  EXPECT_EQ(names_of(measured), (std::vector<std::string>{"gemm", "memory"}));
  EXPECT_TRUE(describe_kind(*backend, 0).starts_with("1 threads, ")) << describe_kind(*backend, 0);
}

TEST(DeepCheckTest, OneWrongElementOfAGemmFails) {
  DeepMeasurements measured;
  WrongBackend backend;
  const absl::Status status = test_device(backend, 0.05, measured);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "1 of 262144 elements of a GEMM are wrong");
}

TEST(DeepCheckTest, StorageIsMeasuredAndLeavesNoFiles) {
  const TempFolder folder;
  DeepMeasurements measured;
  EXPECT_TRUE(test_storage(folder.path(), 1 << 20, 0.01, measured).ok());
  EXPECT_EQ(names_of(measured), (std::vector<std::string>{"storage_write", "storage_read"}));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const absl::Status gone = test_storage(folder.file("gone"), 1 << 20, 0.01, measured);
  EXPECT_NE(gone.message().find("making a file in " + folder.file("gone")), std::string::npos)
      << gone;
}

// CUDA hides a GPU that is broken, and those after it.
TEST(DeepCheckTest, AllGpusOfTheWorkerAreTested) {
  EXPECT_TRUE(check_visible_gpus("GPU-1,GPU-2", 2, absl::OkStatus()).ok());
  EXPECT_EQ(check_visible_gpus("GPU-1,GPU-2,GPU-3", 1, absl::OkStatus()).message(),
            "CUDA finds 1 of the worker's 3 GPUs");
  EXPECT_EQ(check_visible_gpus("GPU-1", 0, absl::FailedPreconditionError("no driver")).message(),
            "CUDA finds 0 of the worker's 1 GPUs: no driver");
  EXPECT_TRUE(check_visible_gpus("GPU-1", 0, absl::UnimplementedError("no CUDA")).ok());
}

TEST(DeepCheckTest, TheMedianIsThatOfTheValues) {
  EXPECT_EQ(median_of_measured({5}), 5);
  EXPECT_EQ(median_of_measured({3, 9, 1}), 3);
}

}  // namespace
}  // namespace muster::trainer
