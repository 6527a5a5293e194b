// The CUDA backend's embeddings.
#include "trainer_core/ops/cuda/cuda_ops.h"
#include "trainer_core/ops/workspace.h"

namespace muster::trainer::cuda {
namespace {

uint64_t* sorted_keys(Workspace workspace) { return reinterpret_cast<uint64_t*>(workspace.data); }

}  // namespace

void CudaOps::do_embedding(const Tensor& tokens, const Tensor& table, const VocabularySlice& slice,
                           double scale, const Tensor& out) {
  const int64_t width = table.dim(1);
  cuda::embedding(stream_, {.dtype = out.dtype,
                            .table_type = table.dtype,
                            .rows = tokens.elements(),
                            .width = width,
                            .first = slice.first,
                            .ids = table.dim(0),
                            .limit = slice.ids(table.dim(0)),
                            .scale = static_cast<float>(scale),
                            .tokens = tokens.i32(),
                            .table = table.float_data(),
                            .out = out.float_data(),
                            .fault = fault()});
}
void CudaOps::do_embedding_backward(const Tensor& tokens, const Tensor& dout,
                                    const VocabularySlice& slice, double scale,
                                    const Tensor& dtable, Workspace workspace) {
  const int64_t width = dtable.dim(1);
  cuda::embedding_backward(stream_, {.dtype = dout.dtype,
                                     .rows = tokens.elements(),
                                     .width = width,
                                     .first = slice.first,
                                     .ids = dtable.dim(0),
                                     .limit = slice.ids(dtable.dim(0)),
                                     .scale = static_cast<float>(scale),
                                     .tokens = tokens.i32(),
                                     .dout = dout.float_data(),
                                     .dtable = dtable.f32(),
                                     .keys = sorted_keys(workspace),
                                     .fault = fault()});
}
void CudaOps::do_add_positions(const Tensor& table, const TokenRows& rows, const Tensor& starts,
                               const Tensor& x) {
  const int64_t width = table.dim(1), count = x.elements() / width;
  cuda::add_positions(stream_, {.dtype = x.dtype,
                                .rows = count,
                                .width = width,
                                .token_rows = DeviceTokenRows::of(rows),
                                .starts = starts.data == nullptr ? nullptr : starts.i32(),
                                .table = table.f32(),
                                .x = x.float_data(),
                                .fault = fault()});
}
void CudaOps::do_positions_backward(const Tensor& dx, const TokenRows& rows, const Tensor& starts,
                                    const Tensor& dtable, Accumulate accumulate,
                                    Workspace workspace) {
  const int64_t width = dtable.dim(1), count = dx.elements() / width;
  if (accumulate == Accumulate::kNo) fill(dtable, 0);
  cuda::positions_backward(stream_, {.dtype = dx.dtype,
                                     .rows = count,
                                     .width = width,
                                     .token_rows = DeviceTokenRows::of(rows),
                                     .starts = starts.data == nullptr ? nullptr : starts.i32(),
                                     .table = dtable.f32(),
                                     .x = dx.float_data(),
                                     .fault = fault(),
                                     .keys = sorted_keys(workspace)});
}

}  // namespace muster::trainer::cuda
