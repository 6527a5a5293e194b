// Rows of the embedding tables by token id and by position. Memory-bound: the compiler's vectors
// are enough.
#include <algorithm>

#include "trainer_core/ops/cpu/cpu_ops.h"
#include "trainer_core/ops/cpu/value_checks.h"

namespace muster::trainer::cpu {
namespace {

template <class Table, class T>
void gather(int64_t begin, int64_t end, const Embedding& args, T* out) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t id = args.tokens[row] - args.first;
    T* to = out + row * args.width;
    if (id < 0 || id >= args.ids) {
      std::fill_n(to, args.width, from_float<T>(0));
      continue;
    }
    const Table* from = static_cast<const Table*>(args.table) + id * args.width;
    for (int64_t i = 0; i < args.width; ++i) to[i] = from_float<T>(args.scale * to_float(from[i]));
  }
}

template <class T>
void scatter(int64_t begin, int64_t end, int64_t rows, const EmbeddingBackward& args) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t id = args.tokens[row] - args.first;
    if (id < 0 || id >= args.ids) continue;
    const T* from = static_cast<const T*>(args.dout) + row * args.width;
    float* to = args.dtable + id * args.width;
    for (int64_t i = begin; i < end; ++i) to[i] += args.scale * to_float(from[i]);
  }
}

void embedding_rows(int64_t begin, int64_t end, const Embedding& args, void* out) {
  if (args.table_dtype == DType::kBf16) {
    gather<Bf16>(begin, end, args, static_cast<Bf16*>(out));
  } else if (args.dtype == DType::kBf16) {
    gather<float>(begin, end, args, static_cast<Bf16*>(out));
  } else {
    gather<float>(begin, end, args, static_cast<float*>(out));
  }
}

void embedding_backward_columns(int64_t begin, int64_t end, int64_t rows,
                                const EmbeddingBackward& args) {
  if (args.dtype == DType::kBf16) {
    scatter<Bf16>(begin, end, rows, args);
  } else {
    scatter<float>(begin, end, rows, args);
  }
}

int64_t start_of(const Tensor& starts, int64_t row) {
  return starts.data == nullptr ? 0 : starts.i32()[row];
}

}  // namespace

void CpuOps::do_embedding(const Tensor& tokens, const Tensor& table, const VocabularySlice& slice,
                          double scale, const Tensor& out) {
  const int64_t width = table.dim(1);
  check_ids(tokens, slice.ids(table.dim(0)), "token");
  const Embedding args{
      out.dtype,    table.dtype,       slice.first, table.dim(0), width, static_cast<float>(scale),
      tokens.i32(), table.float_data()};
  split(tokens.elements(), out.elements(),
        [&](int64_t begin, int64_t end) { embedding_rows(begin, end, args, out.float_data()); });
}

void CpuOps::do_embedding_backward(const Tensor& tokens, const Tensor& dout,
                                   const VocabularySlice& slice, double scale, const Tensor& dtable,
                                   Workspace /*workspace*/) {
  const int64_t width = dtable.dim(1);
  check_ids(tokens, slice.ids(dtable.dim(0)), "token");
  const EmbeddingBackward args{
      dout.dtype,   slice.first,       dtable.dim(0), width, static_cast<float>(scale),
      tokens.i32(), dout.float_data(), dtable.f32()};
  split(width, dout.elements(), [&](int64_t begin, int64_t end) {
    embedding_backward_columns(begin, end, tokens.elements(), args);
  });
}

void CpuOps::do_add_positions(const Tensor& table, const TokenRows& rows, const Tensor& starts,
                              const Tensor& x) {
  const int64_t width = table.dim(1), count = x.elements() / width;
  check_starts(starts, rows, count);
  split(count, x.elements(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t position = rows.position(row) - start_of(starts, row);
      add_parameters_range(x.dtype, width, table.f32() + position * width, at(x, row * width));
    }
  });
}

void CpuOps::do_positions_backward(const Tensor& dx, const TokenRows& rows, const Tensor& starts,
                                   const Tensor& dtable, Accumulate accumulate,
                                   Workspace /*workspace*/) {
  const int64_t width = dtable.dim(1), count = dx.elements() / width;
  check_starts(starts, rows, count);
  if (accumulate == Accumulate::kNo) fill(dtable, 0);
  split(rows.positions.end(), dx.elements(), [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < count; ++row) {
      const int64_t position = rows.position(row) - start_of(starts, row);
      if (position < begin || position >= end) continue;
      add_gradients_range(dx.dtype, width, at(dx, row * width), dtable.f32() + position * width);
    }
  });
}

}  // namespace muster::trainer::cpu
