// Rows of the embedding tables by token id and by position. Memory-bound: the compiler's vectors
// are enough.
#include <algorithm>

#include "trainer_core/ops/cpu/kernels.h"

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

}  // namespace

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

}  // namespace muster::trainer::cpu
