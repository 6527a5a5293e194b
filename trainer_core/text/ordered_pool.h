// Threads that tokenize a stream's chunks and deliver them in the order of the input. An idle
// thread reads the next chunk, so that reading and decompressing need no thread of their own; one
// thread reads at a time.
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

// Has one owner, which calls next(). The data that is read and not yet delivered is bounded for any
// chunk sizes: some chunks per thread, or one chunk that is larger.
class OrderedPool {
 public:
  using MakeEncoder = std::function<std::unique_ptr<ChunkEncoder>()>;

  // From now on only the threads use `stream`, which outlives the pool. `make` is called on each
  // thread.
  OrderedPool(ChunkStream& stream, MakeEncoder make, size_t threads);
  // Discards chunks that were not delivered, and joins the threads.
  ~OrderedPool();
  OrderedPool(const OrderedPool&) = delete;
  OrderedPool& operator=(const OrderedPool&) = delete;

  // Returns the next chunk; nullopt at the end. Blocks until it is encoded. A chunk that could not
  // be read or encoded has an error status and is the last one.
  std::optional<EncodedChunk> next();

 private:
  struct Done {
    EncodedChunk chunk;
    size_t held_bytes = 0;
  };

  void work();
  // Blocks until this thread may read. Returns false if there is nothing left to do.
  bool may_read();
  // Returns nullopt at the end of the stream; `number` is the chunk's index in the order.
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
