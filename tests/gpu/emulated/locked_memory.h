// The host memory that the emulated device's runtime has page-locked.
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <mutex>

namespace emulated {

// A set of memory ranges. Thread-safe.
class LockedMemory {
 public:
  // Adds a range. Returns false if a part of it is in the set already, because drivers lock no page
  // twice.
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
  // Returns whether one range of the set contains all of [data, data + bytes).
  bool hold(const void* data, size_t bytes) const {
    const std::lock_guard lock(mutex_);
    const auto behind = all_.upper_bound(static_cast<const char*>(data));
    if (behind == all_.begin()) return false;
    const auto& [begin, size] = *std::prev(behind);
    return static_cast<const char*>(data) + bytes <= begin + size;
  }
  // Returns whether [data, data + bytes) lies partly inside and partly outside of a range: drivers
  // refuse such copies.
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

// locked() has the ranges of cudaHostAlloc, registered() those of cudaHostRegister. The two sets
// are never destroyed, because some objects release their memory after the destructors of static
// variables have run.
inline LockedMemory& locked() {
  static auto* const all = new LockedMemory;
  return *all;
}
inline LockedMemory& registered() {
  static auto* const all = new LockedMemory;
  return *all;
}

}  // namespace emulated
