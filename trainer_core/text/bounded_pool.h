// A bounded memory pool for Arrow. Arrow allocates the sizes that a file's page headers state
// before it reads the pages, so a damaged header could otherwise exhaust the memory.
#pragma once

#include <arrow/memory_pool.h>
#include <arrow/status.h>

#include <cstdint>
#include <string>

namespace muster::trainer {

// A pool that forwards to Arrow's default pool, but limits the bytes allocated at any time to
// `bytes_max`. Not thread-safe. (Arrow has such a pool since version 21.)
class BoundedPool : public arrow::MemoryPool {
 public:
  explicit BoundedPool(int64_t bytes_max) : bytes_max_(bytes_max) {}

  arrow::Status Allocate(int64_t size, int64_t alignment, uint8_t** out) override {
    if (auto status = check(size); !status.ok()) return status;
    auto status = pool_.Allocate(size, alignment, out);
    if (status.ok()) count(size);
    return status;
  }
  arrow::Status Reallocate(int64_t old_size, int64_t new_size, int64_t alignment,
                           uint8_t** ptr) override {
    if (auto status = check(new_size - old_size); !status.ok()) return status;
    auto status = pool_.Reallocate(old_size, new_size, alignment, ptr);
    if (status.ok()) count(new_size - old_size);
    return status;
  }
  void Free(uint8_t* buffer, int64_t size, int64_t alignment) override {
    pool_.Free(buffer, size, alignment);
    bytes_ -= size;
  }

  int64_t bytes_allocated() const override { return bytes_; }
  int64_t max_memory() const override { return peak_; }
  int64_t total_bytes_allocated() const override { return total_; }
  int64_t num_allocations() const override { return allocations_; }
  std::string backend_name() const override { return pool_.backend_name(); }

 private:
  arrow::Status check(int64_t more) const {
    if (more <= bytes_max_ - bytes_) return arrow::Status::OK();
    return arrow::Status::CapacityError("a page or a column would take ", bytes_ + more,
                                        " bytes of memory; at most ", bytes_max_, " are allowed");
  }
  void count(int64_t more) {
    bytes_ += more;
    peak_ = bytes_ > peak_ ? bytes_ : peak_;
    total_ += more > 0 ? more : 0;
    ++allocations_;
  }

  arrow::MemoryPool& pool_ = *arrow::default_memory_pool();
  const int64_t bytes_max_;
  int64_t bytes_ = 0;
  int64_t peak_ = 0;
  int64_t total_ = 0;
  int64_t allocations_ = 0;
};

}  // namespace muster::trainer
