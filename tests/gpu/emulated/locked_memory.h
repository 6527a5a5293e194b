// Host memory that the emulated device's runtime has page-locked.
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <mutex>

namespace emulated {

// Pieces of memory, keyed by their begin. Thread-safe.
class LockedMemory {
 public:
  // Returns false if a part of it is pinned already: drivers pin no page twice.
  bool add(const void* data, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const char* const begin = static_cast<const char*>(data);
    for (const auto& [from, size] : all_)
      if (from < begin + bytes && begin < from + size) return false;
    all_[begin] = bytes;
    return true;
  }
  bool remove(const void* data) {
    const std::lock_guard lock(mutex_);
    return all_.erase(static_cast<const char*>(data)) == 1;
  }
  // Returns whether one piece contains all of it.
  bool hold(const void* data, size_t bytes) const {
    const std::lock_guard lock(mutex_);
    const auto behind = all_.upper_bound(static_cast<const char*>(data));
    if (behind == all_.begin()) return false;
    const auto& [begin, size] = *std::prev(behind);
    return static_cast<const char*>(data) + bytes <= begin + size;
  }
  // Returns whether it lies partly inside and partly outside of a piece: drivers refuse to copy
  // that.
  bool cross(const void* data, size_t bytes) const {
    const std::lock_guard lock(mutex_);
    const char* const begin = static_cast<const char*>(data);
    for (const auto& [from, size] : all_) {
      const bool meets = begin < from + size && from < begin + bytes;
      if (meets && !(from <= begin && begin + bytes <= from + size)) return true;
    }
    return false;
  }

 private:
  mutable std::mutex mutex_;
  std::map<const char*, size_t> all_;
};

// Pinned by cudaHostAlloc and by cudaHostRegister. Never destroyed: objects that live as long as
// the process release their memory after destructors of statics.
inline LockedMemory& locked() {
  static auto* const all = new LockedMemory;
  return *all;
}
inline LockedMemory& registered() {
  static auto* const all = new LockedMemory;
  return *all;
}

}  // namespace emulated
