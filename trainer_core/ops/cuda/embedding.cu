// Gathers rows of the embedding tables by token id and by position, and adds their gradients.
//
// Gradients: the rows of one id are added in row order, as on the CPU, without atomic additions.
// The block of the first row with an id searches for the others from there on. Blocks of later rows
// detect, mostly early, that they are not the first, and end. In the worst case each block reads
// all R ids, from a cache.
#include "trainer_core/ops/cuda/device.cuh"
#include "trainer_core/ops/cuda/kernels.h"

namespace muster::trainer::cuda {
namespace {

template <class Table, class T>
__global__ void gather_kernel(Embedding args) {
  const Table* table = static_cast<const Table*>(args.table);
  T* out = static_cast<T*>(args.out);
  for (int64_t i = global_index(); i < args.rows * args.width; i += global_count()) {
    const int64_t token = args.tokens[i / args.width], id = token - args.first;
    if (token < 0 || token >= args.limit) *args.fault = static_cast<int32_t>(Fault::kToken);
    const bool here = id >= 0 && id < args.ids;
    out[i] =
        from_float<T>(here ? args.scale * to_float(table[id * args.width + i % args.width]) : 0.0F);
  }
}

// Returns the row of the table that a row's gradient is for; -1 for none here.
struct TokenOf {
  int64_t first, ids, limit;
  const int32_t* tokens;
  FaultWord fault;

  __device__ int64_t operator()(int64_t row) const {
    const int64_t token = tokens[row], id = token - first;
    if (token < 0 || token >= limit) *fault = static_cast<int32_t>(Fault::kToken);
    return id >= 0 && id < ids && token < limit ? id : -1;
  }
};
struct PositionOf {
  DeviceTokenRows token_rows;
  const int32_t* starts;
  FaultWord fault;

  __device__ int64_t operator()(int64_t row) const {
    const int64_t position = token_rows.position(row), start = starts == nullptr ? 0 : starts[row];
    if (start >= 0 && start <= position) return position - start;
    *fault = static_cast<int32_t>(Fault::kStart);
    return -1;
  }
};

// Rows that a thread compares at a time: the loads are in flight together, and barriers are few.
constexpr int kCompared = 4;
constexpr int kChunk = kCompared * kThreads;

// table[id(row)] += scale x[row]: a block has a row, whose id is its own if no earlier row has it.
template <class T, class IdOf>
__global__ void scatter_kernel(int64_t rows, int64_t width, float scale, IdOf id_of, const T* x,
                               float* table) {
  // Word w has a bit for each of rows [chunk + 32 w, chunk + 32 (w + 1)) that has the id.
  __shared__ unsigned found[kChunk / kWarp];
  const int64_t own = blockIdx.x, id = id_of(own);
  if (id < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const auto find = [&](int64_t chunk, int64_t begin, int64_t end) {
    unsigned bits[kCompared];
#pragma unroll
    for (int i = 0; i < kCompared; ++i) {
      const int64_t row = chunk + i * kThreads + threadIdx.x;
      bits[i] = __ballot_sync(kAllLanes, row >= begin && row < end && id_of(row) == id);
    }
    // Other threads may still read the words of the last chunk.
    __syncthreads();
    if (lane == 0)
      for (int i = 0; i < kCompared; ++i) found[i * (kThreads / kWarp) + warp] = bits[i];
    __syncthreads();
  };
  for (int64_t chunk = 0; chunk < own; chunk += kChunk) {
    find(chunk, 0, own);
    unsigned any = 0;
#pragma unroll
    for (int i = 0; i < kChunk / kWarp; ++i) any |= found[i];
    // All threads see the same words.
    if (any != 0) return;
  }
  float* const to = table + id * width;
  for (int64_t chunk = own / kChunk * kChunk; chunk < rows; chunk += kChunk) {
    find(chunk, own, rows);
    for (int i = 0; i < kChunk / kWarp; ++i) {
      for (unsigned bits = found[i]; bits != 0; bits &= bits - 1) {
        const T* from = x + (chunk + i * kWarp + __ffs(static_cast<int>(bits)) - 1) * width;
        for (int64_t column = threadIdx.x; column < width; column += kThreads)
          to[column] += scale * to_float(from[column]);
      }
    }
  }
}

template <class T>
__global__ void add_positions_kernel(PositionRows args) {
  T* x = static_cast<T*>(args.x);
  const PositionOf position_of{args.token_rows, args.starts, args.fault};
  for (int64_t i = global_index(); i < args.rows * args.width; i += global_count()) {
    const int64_t position = position_of(i / args.width);
    if (position < 0) continue;
    x[i] = from_float<T>(to_float(x[i]) + args.table[position * args.width + i % args.width]);
  }
}

}  // namespace

void embedding(cudaStream_t stream, const Embedding& args) {
  const auto start = [&](auto kernel) {
    launch(stream, blocks_for(args.rows * args.width), kThreads, kernel, args);
  };
  if (args.table_type == DType::kBf16) {
    start(gather_kernel<Bf16, Bf16>);
  } else if (args.dtype == DType::kBf16) {
    start(gather_kernel<float, Bf16>);
  } else {
    start(gather_kernel<float, float>);
  }
}

void embedding_backward(cudaStream_t stream, const EmbeddingBackward& args) {
  const TokenOf token_of{args.first, args.ids, args.limit, args.tokens, args.fault};
  with_type(args.dtype, [&](auto number) {
    using T = decltype(number);
    launch(stream, one_block_each(args.rows), kThreads, scatter_kernel<T, TokenOf>, args.rows,
           args.width, args.scale, token_of, static_cast<const T*>(args.dout), args.dtable);
  });
}

void add_positions(cudaStream_t stream, const PositionRows& args) {
  with_type(args.dtype, [&](auto number) {
    launch(stream, blocks_for(args.rows * args.width), kThreads,
           add_positions_kernel<decltype(number)>, args);
  });
}

void positions_backward(cudaStream_t stream, const PositionRows& args) {
  const PositionOf position_of{args.token_rows, args.starts, args.fault};
  with_type(args.dtype, [&](auto number) {
    using T = decltype(number);
    launch(stream, one_block_each(args.rows), kThreads, scatter_kernel<T, PositionOf>, args.rows,
           args.width, 1.0F, position_of, static_cast<const T*>(args.x), args.table);
  });
}

}  // namespace muster::trainer::cuda
