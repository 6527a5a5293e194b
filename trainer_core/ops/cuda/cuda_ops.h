// The CUDA backend's implementation of the op table: launches kernels on its stream. The functions
// of most families are in files of their own (optimizer_ops.cc, quantize_ops.cc, expert_ops.cc,
// attention_ops.cc, embedding_ops.cc, loss_ops.cc, matmul_ops.cc), the others in cuda_ops.cc.
//
// Workspaces: norm_backward and bias_backward need the same sizes as on the CPU; attention needs
// none; attention_backward needs cuda_attention_backward_elements() of ops/workspace.h.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer_core/ops/cuda/attention/attention.h"
#include "trainer_core/ops/cuda/attention/attention_library.h"
#include "trainer_core/ops/cuda/device/cuda.h"
#include "trainer_core/ops/cuda/device/graphs.h"
#include "trainer_core/ops/cuda/device/kernels.h"
#include "trainer_core/ops/cuda/device/library_answer.h"
#include "trainer_core/ops/cuda/device/ranges.h"
#include "trainer_core/ops/cuda/device/stream.h"
#include "trainer_core/ops/cuda/experts/experts.h"
#include "trainer_core/ops/cuda/gemm/matrix_library.h"
#include "trainer_core/ops/shape_checks.h"

namespace muster::trainer::cuda {

class CudaOps final : public Ops {
 public:
  explicit CudaOps(const CudaOptions& options);

  std::string_view name() const override {
    if (library_ == nullptr) return "cuda, built-in GEMMs";
    return attention_library_ == nullptr ? "cuda, cuBLASLt" : "cuda, cuBLASLt, cuDNN";
  }

  void upload(const void* from, const Tensor& to) override;
  void download(const Tensor& from, void* to) override;
  void synchronize() override;
  std::shared_ptr<DeviceQueue> queue() override { return queue_; }
  std::shared_ptr<Replayer> make_replayer() override {
    return std::make_shared<Graphs>(device_, stream_, notes_);
  }
  void begin_range(const char* name, int64_t number) override { push_range(name, number); }
  void end_range() override { pop_range(); }
  std::vector<std::string> take_notes() override { return notes_.take(); }

  void matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
              const Tensor& c, Accumulate accumulate) override;
  void fused_matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
                    const Tensor& c, const Epilogue& epilogue) override;

 private:
#define MUSTER_OP(result, name, parameters, arguments) result do_##name parameters override;
#include "trainer_core/ops/op_table.inc"

  FaultWord fault() const { return static_cast<FaultWord>(fault_.data()); }
  // Ends the process if a kernel has found an id outside a table. Requires that the stream's work
  // is complete.
  void check_fault() const;
  // Returns the first `count` elements of the scratch. Ends the process if the scratch is too
  // small, which is a bug.
  template <class T>
  T* scratch(int64_t count) const {
    MUSTER_CHECK(static_cast<size_t>(count) * sizeof(T) <= scratch_.bytes())
        << "the GPU's scratch has " << scratch_.bytes() << " bytes, not " << count << " of "
        << sizeof(T);
    return static_cast<T*>(scratch_.data());
  }
  double reduced(void (*kernel)(cudaStream_t, DType, int64_t, const void*, double*),
                 const Tensor& x);
  void norm_rows(DType dtype, const NormShape& shape, const Tensor& x, const void* delta,
                 const NormWeights& weights, void* sum, const Tensor& y, const Tensor& stats);
  // Returns whether cuBLASLt has computed the GEMM; if not, adds a note. `epilogue` may be null.
  bool multiply_by_library(const Tensor& a, bool ta, const Tensor& b, bool tb, const Tensor& c,
                           bool accumulate, const Epilogue* epilogue);
  AttentionLayer layer_of(const AttentionShape& shape, const Tensor& qkv, const KeyRows& keys,
                          const Tensor& bias) const;
  // Returns whether cuDNN has computed the attention, by calls of `run`; if not, adds a note.
  bool attend_by_library(const char* what, const AttentionShape& shape, const Tensor& qkv,
                         const Tensor& out, const Tensor& lse, const AttentionPartRun& run);
  void note_own_attention(const char* what, const AttentionShape& shape,
                          const LibraryAnswer& answer);
  void run_attention_backward(AttentionBackward args, const AttentionShape& shape,
                              const Tensor& dbias, Accumulate accumulate, Workspace workspace);
  void loss(const LossShape& shape, const Tensor& logits, const Tensor& targets,
            const Tensor& weights, const Tensor& losses, const Tensor& gradient);

  const int device_;
  const bool allows_tf32_;
  const std::shared_ptr<Queue> queue_;
  const cudaStream_t stream_;  // owned by queue_
  CudaMemory scratch_;
  HostMemory fault_{sizeof(int32_t)};
  HostMemory sums_{kReductionBlocks * sizeof(double)};
  std::unique_ptr<MatrixLibrary> library_;
  std::unique_ptr<AttentionLibrary> attention_library_;
  LibraryNotes notes_;
};

}  // namespace muster::trainer::cuda
