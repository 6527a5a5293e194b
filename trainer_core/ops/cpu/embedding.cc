// Rows of the embedding tables by token id and by position. Memory-bound: the compiler's vectors are enough.
#include <cstring>

#include "trainer_core/ops/cpu/kernels.h"

namespace muster::trainer::cpu {

void embedding_rows(int64_t begin, int64_t end, const Embedding& args, float* out) {
  for (int64_t row = begin; row < end; ++row) {
    const float* from = args.table + args.tokens[row] * args.width;
    float* to = out + row * args.width;
    if (args.scale == 1) {
      std::memcpy(to, from, static_cast<size_t>(args.width) * sizeof(float));
    } else {
      for (int64_t i = 0; i < args.width; ++i) to[i] = args.scale * from[i];
    }
  }
}

void embedding_backward_columns(int64_t begin, int64_t end, int64_t rows,
                                const EmbeddingBackward& args) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = args.dout + row * args.width;
    float* to = args.dtable + args.tokens[row] * args.width;
    for (int64_t i = begin; i < end; ++i) to[i] += args.scale * from[i];
  }
}

}  // namespace muster::trainer::cpu
