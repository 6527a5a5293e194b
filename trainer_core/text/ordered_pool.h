// A pool of threads that tokenize the chunks of a stream; results are delivered in the order of the
// input. There is no separate reader: an idle thread reads and decompresses the next chunk, one
// thread at a time, and then tokenizes it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "trainer_core/text/chunk.h"
#include "trainer_core/text/encode.h"

namespace muster::trainer {

// The pool. next() is called on one thread only. The chunks that were read but not yet delivered
// have a bounded total size, whatever the sizes of chunks: a few times kChunkBytes per thread,
// exceeded by at most one chunk.
class OrderedPool {
 public:
  using MakeEncoder = std::function<std::unique_ptr<ChunkEncoder>()>;

  // Starts the threads; each calls `make` once. `stream` must outlive the pool, and only the pool
  // may use it.
  OrderedPool(ChunkStream& stream, MakeEncoder make, size_t threads);
  // Joins the threads, and discards chunks that were not delivered.
  ~OrderedPool();
  OrderedPool(const OrderedPool&) = delete;
  OrderedPool& operator=(const OrderedPool&) = delete;

  // Returns the next encoded chunk; nullopt at the end. Blocks until the chunk is encoded. A chunk
  // that could not be read or encoded has an error status, and no chunk follows it.
  std::optional<EncodedChunk> next();

 private:
  struct Done {
    EncodedChunk chunk;
    size_t held_bytes = 0;
  };

  void work();
  // Blocks until this thread may read the next chunk. Returns false if no chunk remains or the pool
  // is stopping.
  bool may_read();
  // Reads the next chunk and stores its index in the input's order in `number`. Returns nullopt at
  // the end of the stream and on an error, which is stored in `failed`.
  std::optional<Chunk> read(uint64_t& number, EncodedChunk& failed);
  void deliver(uint64_t number, EncodedChunk chunk, size_t held_bytes);

  ChunkStream& stream_;
  const MakeEncoder make_;
  const size_t held_bytes_max_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable room_;
  std::condition_variable ready_;
  bool is_reading_ = false;
  bool is_at_end_ = false;
  bool is_stopping_ = false;
  size_t held_bytes_ = 0;
  uint64_t next_read_ = 0;
  uint64_t next_returned_ = 0;
  std::map<uint64_t, Done> done_;
  std::vector<std::jthread> threads_;  // last, so that the threads end before the other members
};

}  // namespace muster::trainer
