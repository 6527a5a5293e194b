// The CUDA backend: checks shapes and starts kernels on its stream. Its parts are in files named
// like the CPU's (optimizer_ops.cc, quantize_ops.cc, expert_ops.cc, attention_ops.cc, loss_ops.cc);
// the rest is in cuda_ops.cc.
//
// Workspaces: norm_backward and bias_backward need the same as the CPU's; attention needs none,
// attention_backward needs cuda_attention_backward_elements() of ops/workspace.h.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer_core/ops/checks.h"
#include "trainer_core/ops/cuda/attention.h"
#include "trainer_core/ops/cuda/attention_library.h"
#include "trainer_core/ops/cuda/cuda.h"
#include "trainer_core/ops/cuda/experts.h"
#include "trainer_core/ops/cuda/graphs.h"
#include "trainer_core/ops/cuda/kernels.h"
#include "trainer_core/ops/cuda/library_answer.h"
#include "trainer_core/ops/cuda/matrix_library.h"
#include "trainer_core/ops/cuda/ranges.h"
#include "trainer_core/ops/cuda/stream.h"

namespace muster::trainer::cuda {

class CudaOps final : public Ops {
 public:
  explicit CudaOps(const CudaOptions& options);

  std::string_view name() const override {
    if (library_ == nullptr) return "cuda, own products";
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

  void fill(const Tensor& x, float value) override;
  void fill_normal(const NormalStream& values, int64_t first, int64_t pitch,
                   const Tensor& x) override;
  void copy(const Tensor& from, const Tensor& to) override;
  void add(const Tensor& x, const Tensor& delta, const Tensor& sum) override;
  void scale(double factor, const Tensor& x) override;
  void dropout(const DropoutMask& mask, const Tensor& x) override;
  double sum(const Tensor& x) override;
  double sum_of_squares(const Tensor& x) override;
  void matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
              const Tensor& c, Accumulate accumulate) override;
  void fused_matmul(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
                    const Tensor& c, const Epilogue& epilogue) override;
  void add_bias(const Tensor& bias, const Tensor& x) override;
  void bias_backward(const Tensor& dx, const Tensor& dbias, Accumulate accumulate,
                     Workspace workspace) override;
  void embedding(const Tensor& tokens, const Tensor& table, const VocabularySlice& slice,
                 double scale, const Tensor& out) override;
  void embedding_backward(const Tensor& tokens, const Tensor& dout, const VocabularySlice& slice,
                          double scale, const Tensor& dtable) override;
  void add_positions(const Tensor& table, const TokenRows& rows, const Tensor& starts,
                     const Tensor& x) override;
  void positions_backward(const Tensor& dx, const TokenRows& rows, const Tensor& starts,
                          const Tensor& dtable, Accumulate accumulate) override;
  void norm(const NormShape& shape, const Tensor& x, const NormWeights& weights, const Tensor& y,
            const Tensor& stats) override;
  void add_norm(const NormShape& shape, const Tensor& x, const Tensor& delta,
                const NormWeights& weights, const Tensor& sum, const Tensor& y,
                const Tensor& stats) override;
  void norm_backward(const NormShape& shape, const Tensor& dy, const Tensor& x,
                     const NormWeights& weights, const Tensor& stats, const Tensor& dx,
                     const NormWeights& d_weights, Accumulate accumulate,
                     Workspace workspace) override;
  void activate(const MlpActivation& activation, const Tensor& in, const Tensor& out) override;
  void activate_backward(const MlpActivation& activation, const Tensor& dout, const Tensor& in,
                         const Tensor& d_in) override;
  void copy_columns(const Tensor& from, int64_t from_column, const Tensor& to, int64_t to_column,
                    int64_t columns) override;

  void rope(const AttentionShape& shape, const Tensor& cos, const Tensor& sin, RopePairs pairs,
            RopeDirection direction, const Tensor& qkv) override;
  void attention(const AttentionShape& shape, const Tensor& qkv, const Tensor& bias,
                 const Tensor& out, const Tensor& lse, Workspace workspace) override;
  void attention_cached(const AttentionShape& shape, int64_t position, const Tensor& qkv,
                        const Tensor& bias, const KvCache& cache, const Tensor& out,
                        Workspace workspace) override;
  void attention_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& bias,
                          const Tensor& out, const Tensor& lse, const Tensor& dout,
                          const Tensor& dqkv, const Tensor& dbias, Accumulate accumulate,
                          Workspace workspace) override;
  void attention_block(const AttentionShape& shape, const Tensor& qkv, const KeyValueBlock& keys,
                       const Tensor& bias, const AttentionSums& sums, Accumulate accumulate,
                       Workspace workspace) override;
  void attention_block_backward(const AttentionShape& shape, const Tensor& qkv,
                                const KeyValueBlock& keys, const Tensor& bias, const Tensor& out,
                                const Tensor& lse, const Tensor& dout,
                                const AttentionBlockGradients& gradients,
                                Workspace workspace) override;

  void soft_cap(double cap, const Tensor& x) override;
  void cross_entropy(const LossShape& shape, const Tensor& logits, const Tensor& targets,
                     const Tensor& weights, const Tensor& losses) override;
  void cross_entropy_backward(const LossShape& shape, const Tensor& logits, const Tensor& targets,
                              const Tensor& weights, const Tensor& losses) override;
  void logit_sums(const LossShape& shape, const VocabularySlice& slice, const Tensor& logits,
                  const Tensor& targets, const Tensor& sums) override;
  void sliced_cross_entropy(const LossShape& shape, const Tensor& sums, const Tensor& weights,
                            const Tensor& losses) override;
  void sliced_cross_entropy_backward(const LossShape& shape, const VocabularySlice& slice,
                                     const Tensor& logits, const Tensor& targets,
                                     const Tensor& sums, const Tensor& weights,
                                     const Tensor& losses) override;

  void adam(const AdamStep& step, const Tensor& grads, const Tensor& params, const Tensor& m,
            const Tensor& v) override;
  void adam_direction(const AdamStep& step, const Tensor& grads, const Tensor& m,
                      const Tensor& v) override;
  void adafactor_direction(const AdafactorStep& step, const Tensor& grads,
                           const Tensor& v) override;
  void add_squares(const Tensor& x, std::span<double> rows, std::span<double> columns) override;
  void adafactor_factors(const AdafactorStep& step, std::span<const double> row_sums,
                         std::span<const double> column_sums, const Tensor& rows,
                         const Tensor& columns) override;
  void adafactor_factored_direction(const AdafactorStep& step, const Tensor& grads,
                                    const Tensor& rows, int64_t first_row, const Tensor& columns,
                                    int64_t first_column) override;
  void apply_update(double rate, double kept, const Tensor& direction,
                    const Tensor& params) override;

  void abs_max(const Tensor& x, ScaleOf of, const Tensor& amax, Accumulate accumulate) override;
  void current_scale(NumberGrid grid, const Tensor& amax, const Tensor& scale) override;
  void delayed_scale(const Tensor& amax, const Tensor& history, const Tensor& scale) override;
  void quantize(NumberGrid grid, const Tensor& x, ScaleOf of, const Tensor& scale,
                const std::optional<RoundingNoise>& noise, const Tensor& out) override;
  void dequantize(const Tensor& product, const Tensor& row_scale, const Tensor& column_scale,
                  const Tensor& out, Accumulate accumulate) override;

  void route(const RoutingShape& shape, const Tensor& weights, const Routing& routing) override;
  void route_backward(const RoutingShape& shape, const Tensor& weights, const Tensor& dgates,
                      const Routing& routing) override;
  void dispatch(const Tensor& slots, const Tensor& x, const Tensor& rows) override;
  void dispatch_backward(const Tensor& slots, const Tensor& drows, const Tensor& dx) override;
  void combine(const Tensor& slots, const Tensor& gates, const Tensor& rows,
               const Tensor& out) override;
  void combine_backward(const Tensor& slots, const Tensor& gates, const Tensor& act,
                        const Tensor& dact, const Tensor& dgates) override;
  void expert_matmul(const Tensor& offsets, const Tensor& x, const Tensor& w,
                     const Tensor& y) override;
  void expert_matmul_dx(const Tensor& offsets, const Tensor& dy, const Tensor& w,
                        const Tensor& dx) override;
  void expert_matmul_dw(const Tensor& offsets, const Tensor& dy, const Tensor& x, const Tensor& dw,
                        Accumulate accumulate) override;

 private:
  FaultWord fault() const { return static_cast<FaultWord>(fault_.data()); }
  // Ends the process if a kernel has found ids outside a table. Requires: the stream was waited
  // for.
  void check_fault() const;
  // Returns the first `count` elements of the scratch. A request beyond its end is a bug, and ends
  // the process.
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
  // Returns whether the library has computed it; if not, adds a note. `epilogue` may be null.
  bool multiply_by_library(const Tensor& a, bool ta, const Tensor& b, bool tb, const Tensor& c,
                           bool accumulate, const Epilogue* epilogue);
  AttentionLayer layer_of(const AttentionShape& shape, const Tensor& qkv, const KeyRows& keys,
                          const Tensor& bias) const;
  // Returns whether the library has computed it by run(); if not, adds a note.
  bool attend_by_library(const char* what, const AttentionShape& shape, const Tensor& qkv,
                         const Tensor& out, const Tensor& lse, const AttentionPartRun& run);
  void note_own_attention(const char* what, const AttentionShape& shape,
                          const LibraryAnswer& answer);
  void attention_backward(AttentionBackward args, const AttentionShape& shape, const Tensor& dbias,
                          Accumulate accumulate, Workspace workspace);
  void loss(const LossShape& shape, const Tensor& logits, const Tensor& targets,
            const Tensor& weights, const Tensor& losses, bool gradient);

  const int device_;
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
