// Rows of the embedding table by token id. Memory-bound copies: the compiler's vectors are enough.
#include <cstring>

#include "trainer_core/ops/cpu/kernels.h"

namespace muster::trainer::cpu {

void embedding_rows(int64_t begin, int64_t end, int64_t width, const int32_t* tokens,
                    const float* table, float* out) {
  for (int64_t row = begin; row < end; ++row) {
    std::memcpy(out + row * width, table + tokens[row] * width,
                static_cast<size_t>(width) * sizeof(float));
  }
}

void embedding_backward_columns(int64_t begin, int64_t end, int64_t rows, int64_t width,
                                const int32_t* tokens, const float* dout, float* dtable) {
  for (int64_t row = 0; row < rows; ++row) {
    add_range(end - begin, dout + row * width + begin, dtable + tokens[row] * width + begin);
  }
}

}  // namespace muster::trainer::cpu
