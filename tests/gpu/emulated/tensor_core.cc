// GEMMs of a warp and asynchronous copies on a CPU, by the tables of the PTX ISA.
#include "trainer_core/ops/cuda/gemm/tensor_core.cuh"

#include <array>
#include <cstring>
#include <vector>

#include "device_memory.h"
#include "trainer_core/base/bf16.h"

namespace emulated {
namespace {

using muster::trainer::Bf16;

constexpr int kRows = 16, kColumns = 8, kDepth = 16, kWarps = 32;

struct Operands {
  uint32_t a[4], b[2];
};
float half_of(uint32_t word, int half) {
  return Bf16{static_cast<uint16_t>(word >> (16 * half))}.value();
}

// "Matrix fragments for mma.m16n8k16 with floating point type", .bf16: the lane that has an
// element, and the index among the lane's elements.
struct FragmentIndex {
  int lane, number;
};
FragmentIndex index_in_a(int row, int k) {
  return {row % 8 * 4 + k % 8 / 2, k % 2 + (row >= 8 ? 2 : 0) + (k >= 8 ? 4 : 0)};
}
FragmentIndex index_in_b(int k, int column) {
  return {column * 4 + k % 8 / 2, k % 2 + (k >= 8 ? 2 : 0)};
}
FragmentIndex index_in_d(int row, int column) {
  return {row % 8 * 4 + column / 2, column % 2 + (row >= 8 ? 2 : 0)};
}

// The product of the operands that a warp's lanes have shared, in the layout of the lanes. The
// first lane that arrives computes it for all. They read it before any of them shares twice more,
// so two buffers per warp suffice.
struct Product {
  uint64_t exchange = 0;
  float numbers[32][4];
};
const Product& product_of(uint64_t exchange) {
  static std::array<std::array<Product, 2>, kWarps> all;
  Product& product = all[threadIdx.x / 32][exchange % 2];
  if (product.exchange == exchange) return product;
  product.exchange = exchange;
  const Operands* lanes[32];
  for (int lane = 0; lane < 32; ++lane) lanes[lane] = static_cast<const Operands*>(shared_by(lane));
  float a[kRows][kDepth], b[kDepth][kColumns], d[kRows][kColumns] = {};
  for (int k = 0; k < kDepth; ++k) {
    for (int row = 0; row < kRows; ++row) {
      const FragmentIndex at = index_in_a(row, k);
      a[row][k] = half_of(lanes[at.lane]->a[at.number / 2], at.number % 2);
    }
    for (int column = 0; column < kColumns; ++column) {
      const FragmentIndex at = index_in_b(k, column);
      b[k][column] = half_of(lanes[at.lane]->b[at.number / 2], at.number % 2);
    }
  }
  for (int row = 0; row < kRows; ++row)
    for (int k = 0; k < kDepth; ++k)
      for (int column = 0; column < kColumns; ++column) d[row][column] += a[row][k] * b[k][column];
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      const FragmentIndex at = index_in_d(row, column);
      product.numbers[at.lane][at.number] = d[row][column];
    }
  }
  return product;
}

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  bool exists;
};
// Per thread; the last group is the one that is not committed yet.
std::vector<std::vector<Copy>>& groups_of_thread() {
  static std::vector<std::vector<std::vector<Copy>>> all(size_t{32} * kWarps, {{}});
  return all[threadIdx.x];
}

}  // namespace

void mma(float* d, const uint32_t* a, const uint32_t* b) {
  const Operands mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const Product& product = product_of(share(&mine, sizeof(mine)));
  for (int i = 0; i < 4; ++i) d[i] += product.numbers[lane()][i];
}

// "ldmatrix": threads 8 i to 8 i + 7 have the addresses of matrix i's rows; each thread gets two
// neighbouring elements of row lane / 4, or, transposed, of column lane / 4.
void load_matrices(const void* row, bool transposed, uint32_t* words) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) fail("a row of a matrix that is not on 16 bytes");
  share(&row, sizeof(row));
  const int index = lane() / 4, pair = 2 * (lane() % 4);
  for (int matrix = 0; matrix < 4; ++matrix) {
    uint16_t numbers[2];
    for (int i = 0; i < 2; ++i) {
      const int at_row = transposed ? pair + i : index, column = transposed ? index : pair + i;
      const auto* const from = *static_cast<const uint16_t* const*>(shared_by(8 * matrix + at_row));
      numbers[i] = from[column];
    }
    words[matrix] = numbers[0] | static_cast<uint32_t>(numbers[1]) << 16;
  }
}

uint32_t pack_bf16(float low, float high) {
  return Bf16::round(low).bits | static_cast<uint32_t>(Bf16::round(high).bits) << 16;
}

void copy_async(void* to, const void* from, size_t bytes, bool exists) {
  // Checked even if nothing is read: the instruction is the same.
  if (reinterpret_cast<uintptr_t>(to) % bytes != 0 ||
      reinterpret_cast<uintptr_t>(from) % bytes != 0)
    fail("an asynchronous copy that is not aligned");
  groups_of_thread().back().push_back({to, from, bytes, exists});
}
void commit_copies() { groups_of_thread().emplace_back(); }
void wait_for_copies(size_t groups) {
  auto& all = groups_of_thread();
  while (all.size() > groups + 1) {
    for (const Copy& copy : all.front()) {
      if (copy.exists) {
        std::memcpy(copy.to, copy.from, copy.bytes);
      } else {
        std::memset(copy.to, 0, copy.bytes);
      }
    }
    all.erase(all.begin());
  }
}
void check_copies() {
  const auto& all = groups_of_thread();
  if (all.size() > 1 || !all.back().empty())
    fail("a thread ends with copies that it did not wait for");
}

}  // namespace emulated
