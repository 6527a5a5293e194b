// Gathers rows of the embedding tables by token id and by position, and adds their gradients.
//
// Gradients: the rows of one id are added in row order, as on the CPU, without atomic additions. To
// this end the rows are sorted by id: runs of kSorted rows, which are then merged.
#include <algorithm>

#include "trainer_core/ops/cuda/device/device.cuh"
#include "trainer_core/ops/cuda/device/kernels.h"
#include "trainer_core/ops/cuda/device/vectors.cuh"

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

// A key has an id in its upper half and a row in its lower half: sorted keys have the rows of an id
// side by side, in row order.
constexpr uint64_t kNoId = 0xffffffff;
__device__ inline uint64_t key_of(int64_t id, int64_t row) {
  return (id < 0 ? kNoId : static_cast<uint64_t>(id)) << 32 | static_cast<uint64_t>(row);
}
__device__ inline uint64_t id_of(uint64_t key) { return key >> 32; }
__device__ inline int64_t row_of(uint64_t key) { return static_cast<int64_t>(key & 0xffffffff); }

// Keys that a block sorts in 16 KiB of shared memory; a power of two.
constexpr int kSorted = 2048;

// Stores in sorted (R) the keys of each run of kSorted rows in ascending order. The algorithm is a
// bitonic network (Batcher, "Sorting networks and their applications", 1968).
template <class IdOf>
__global__ void sort_chunks_kernel(int64_t rows, IdOf id_of_row, uint64_t* sorted) {
  __shared__ uint64_t keys[kSorted];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kSorted;
  const auto begin = static_cast<int>(threadIdx.x);
  for (int i = begin; i < kSorted; i += kThreads)
    keys[i] = first + i < rows ? key_of(id_of_row(first + i), first + i) : ~uint64_t{0};
  for (int run = 2; run <= kSorted; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int pair = begin; pair < kSorted / 2; pair += kThreads) {
        const int low = 2 * pair - (pair & (step - 1)), high = low + step;
        const bool ascends = (low & run) == 0;
        const uint64_t a = keys[low], b = keys[high];
        if ((a > b) != ascends) continue;
        keys[low] = b;
        keys[high] = a;
      }
    }
  }
  __syncthreads();
  for (int i = begin; i < kSorted; i += kThreads)
    if (first + i < rows) sorted[first + i] = keys[i];
}

// Returns the number of keys below `key` among `count` in ascending order.
__device__ inline int64_t count_below(uint64_t key, const uint64_t* keys, int64_t count) {
  int64_t begin = 0, end = count;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (keys[middle] < key) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

// Stores in merged (R) all keys in ascending order. Keys are distinct: the index of each is the
// number of smaller ones.
__global__ void merge_chunks_kernel(int64_t rows, const uint64_t* sorted, uint64_t* merged) {
  for (int64_t i = global_index(); i < rows; i += global_count()) {
    const uint64_t key = sorted[i];
    int64_t index = i % kSorted;
    for (int64_t chunk = 0; chunk < rows; chunk += kSorted) {
      const int64_t left = rows - chunk;
      if (chunk != i - i % kSorted)
        index += count_below(key, sorted + chunk, left < kSorted ? left : kSorted);
    }
    merged[index] = key;
  }
}

// Rows whose loads a thread has in flight.
constexpr int kAhead = 4;

// Adds scale x[row] to table[id] for each row of an id, in row order. The block of the first key
// with an id adds all its rows.
template <class T, int kCount>
__global__ void add_rows_kernel(int64_t rows, int64_t width, float scale, const uint64_t* keys,
                                const T* x, float* table) {
  const int64_t begin = blockIdx.x;
  const uint64_t id = id_of(keys[begin]);
  if (id == kNoId || (begin > 0 && id_of(keys[begin - 1]) == id)) return;
  int64_t end = begin + 1;
  while (end < rows && id_of(keys[end]) == id) ++end;
  float* const to = table + static_cast<int64_t>(id) * width;
  const int64_t step = static_cast<int64_t>(blockDim.x) * kCount;
  for (int64_t column = threadIdx.x * int64_t{kCount}; column < width; column += step) {
    Pack<kCount> sum = load<kCount>(to + column);
    for (int64_t i = begin; i < end; i += kAhead) {
      Pack<kCount> ahead[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
        if (i + a < end) ahead[a] = load<kCount>(x + row_of(keys[i + a]) * width + column);
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (i + a >= end) continue;
#pragma unroll
        for (int element = 0; element < kCount; ++element)
          sum.of[element] += scale * ahead[a].of[element];
      }
    }
    store(sum, to + column);
  }
}

// table[id_of_row(row)] += scale x[row]. `keys` has room for 2 R.
template <class T, class IdOf>
void add_rows(cudaStream_t stream, int64_t rows, int64_t width, float scale, const IdOf& id_of_row,
              uint64_t* keys, const T* x, float* table) {
  uint64_t* const merged = keys + rows;
  launch(stream, one_block_each(ceil_div(rows, kSorted)), kThreads, sort_chunks_kernel<IdOf>, rows,
         id_of_row, keys);
  launch(stream, blocks_for(rows), kThreads, merge_chunks_kernel, rows, keys, merged);
  with_pack<T>(in_packs(kPack<T>, {width}, {x, table}), [&](auto pack) {
    constexpr int kCount = decltype(pack)::kElements;
    const int64_t warps = ceil_div(ceil_div(width, kCount), kWarp);
    const auto threads = static_cast<unsigned>(std::min<int64_t>(warps * kWarp, kThreads));
    launch(stream, one_block_each(rows), threads, add_rows_kernel<T, kCount>, rows, width, scale,
           merged, x, table);
  });
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
    add_rows(stream, args.rows, args.width, args.scale, token_of, args.keys,
             static_cast<const T*>(args.dout), args.dtable);
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
    add_rows(stream, args.rows, args.width, 1.0F, position_of, args.keys,
             static_cast<const T*>(args.x), args.table);
  });
}

}  // namespace muster::trainer::cuda
