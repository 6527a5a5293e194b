#include "trainer_core/text/ordered_pool.h"

#include <algorithm>
#include <utility>

namespace muster::trainer {
namespace {

// The number of chunks per thread that may be in the pool. More than one compensates for documents
// that take longer than others.
constexpr size_t kChunksPerThread = 4;
// The minimum bytes that are counted for a chunk, so that the number of chunks of tiny files is
// bounded, too.
constexpr size_t kChunkHeldBytesMin = 4096;

}  // namespace

OrderedPool::OrderedPool(ChunkStream& stream, MakeEncoder make, size_t threads)
    : stream_(stream),
      make_(std::move(make)),
      held_bytes_max_(threads * kChunksPerThread * kChunkBytes) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

OrderedPool::~OrderedPool() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  room_.notify_all();
}

std::optional<EncodedChunk> OrderedPool::next() {
  std::unique_lock lock(mutex_);
  ready_.wait(lock, [this] {
    return done_.contains(next_returned_) || (is_at_end_ && next_returned_ == next_read_);
  });
  const auto found = done_.find(next_returned_);
  if (found == done_.end()) return std::nullopt;
  Done done = std::move(found->second);
  done_.erase(found);
  ++next_returned_;
  held_bytes_ -= done.held_bytes;
  room_.notify_all();
  return std::move(done.chunk);
}

void OrderedPool::work() {
  const std::unique_ptr<ChunkEncoder> encoder = make_();
  while (may_read()) {
    uint64_t number = 0;
    EncodedChunk failed;
    const std::optional<Chunk> chunk = read(number, failed);
    if (!chunk) {
      if (!failed.status.ok()) deliver(number, std::move(failed), 0);
      return;
    }
    deliver(number, encoder->encode(*chunk), std::max(chunk->bytes.size(), kChunkHeldBytesMin));
  }
}

bool OrderedPool::may_read() {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [this] {
    return is_stopping_ || is_at_end_ || (!is_reading_ && held_bytes_ < held_bytes_max_);
  });
  if (is_stopping_ || is_at_end_) return false;
  is_reading_ = true;
  return true;
}

std::optional<Chunk> OrderedPool::read(uint64_t& number, EncodedChunk& failed) {
  Chunk chunk;
  const auto more = stream_.next(chunk);
  const std::lock_guard lock(mutex_);
  is_reading_ = false;
  const bool is_there = more.ok() && *more;
  if (!is_there) is_at_end_ = true;
  if (!more.ok()) failed.status = more.status();
  if (is_there || !more.ok()) number = next_read_++;
  if (is_there) held_bytes_ += std::max(chunk.bytes.size(), kChunkHeldBytesMin);
  room_.notify_all();
  ready_.notify_all();
  return is_there ? std::optional(std::move(chunk)) : std::nullopt;
}

void OrderedPool::deliver(uint64_t number, EncodedChunk chunk, size_t held_bytes) {
  const std::lock_guard lock(mutex_);
  done_.emplace(number, Done{std::move(chunk), held_bytes});
  ready_.notify_one();
}

}  // namespace muster::trainer
