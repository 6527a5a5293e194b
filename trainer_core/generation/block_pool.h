// The free blocks of a key/value cache.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace muster::trainer {

class BlockPool {
 public:
  // The pool has the blocks 0 … blocks - 1, all of them free.
  explicit BlockPool(int32_t blocks) : size_(blocks), free_(static_cast<size_t>(blocks)) {
    std::iota(free_.rbegin(), free_.rend(), 0);
  }

  int32_t size() const { return size_; }
  int32_t free() const { return static_cast<int32_t>(free_.size()); }

  // Moves `count` free blocks to the end of `blocks`. Returns false, and moves none, if fewer are
  // free.
  bool take(int32_t count, std::vector<int32_t>& blocks) {
    if (count > free()) return false;
    for (int32_t i = 0; i < count; ++i) {
      blocks.push_back(free_.back());
      free_.pop_back();
    }
    return true;
  }
  // Frees all of `blocks`, and empties it.
  void give_back(std::vector<int32_t>& blocks) {
    free_.insert(free_.end(), blocks.begin(), blocks.end());
    blocks.clear();
  }

 private:
  int32_t size_;
  std::vector<int32_t> free_;
};

}  // namespace muster::trainer
