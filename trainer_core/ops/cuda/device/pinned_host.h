// Page-locks (pins) host memory piece by piece, while earlier pieces are already copied: pinning 77
// GB in a single call would block for a minute.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "trainer_core/ops/cuda/device/cuda_check.h"

namespace muster::trainer::cuda {

// The pinned pieces of host memory. Thread-safe. Requires that the calling thread has selected the
// device.
class PinnedHost {
 public:
  // Pins the pages that begin within [begin, begin + bytes): calls for consecutive parts of a
  // page-aligned block pin each page once. If the driver refuses a piece, it stays pageable.
  void pin(void* begin, size_t bytes) {
    const uintptr_t first = next_page(begin);
    const uintptr_t end = next_page(static_cast<std::byte*>(begin) + bytes);
    if (first == end) return;
    const std::unique_lock lock(mutex_);
    if (cudaHostRegister(reinterpret_cast<void*>(first), end - first, cudaHostRegisterDefault) ==
        cudaSuccess) {
      pieces_[first] = end;
    } else {
      (void)cudaGetLastError();
    }
  }
  // Unpins the pieces of a block that is about to be released.
  void unpin(void* begin, size_t bytes) {
    const std::unique_lock lock(mutex_);
    const auto first = reinterpret_cast<uintptr_t>(begin);
    auto piece = pieces_.lower_bound(first);
    while (piece != pieces_.end() && piece->first < first + bytes) {
      MUSTER_CUDA_CHECK(cudaHostUnregister(reinterpret_cast<void*>(piece->first)));
      piece = pieces_.erase(piece);
    }
  }

  // Calls body(offset, bytes) for consecutive parts of [host, host + bytes), each entirely pinned
  // or entirely pageable: CUDA refuses a copy across the end of a pinned piece. pin() and unpin()
  // wait meanwhile.
  template <class Body>
  void for_parts(const void* host, size_t bytes, const Body& body) const {
    const std::shared_lock lock(mutex_);
    const auto begin = reinterpret_cast<uintptr_t>(host);
    for (size_t offset = 0; offset < bytes;) {
      const size_t part = std::min(bytes - offset, next_bound(begin + offset) - (begin + offset));
      body(offset, part);
      offset += part;
    }
  }

 private:
  static constexpr uintptr_t kPage = 4096;

  static uintptr_t next_page(const void* address) {
    return (reinterpret_cast<uintptr_t>(address) + kPage - 1) / kPage * kPage;
  }
  // Returns the lowest begin or end of a piece that is greater than `address`.
  uintptr_t next_bound(uintptr_t address) const {
    const auto next = pieces_.upper_bound(address);
    if (next != pieces_.begin() && std::prev(next)->second > address)
      return std::prev(next)->second;
    return next == pieces_.end() ? UINTPTR_MAX : next->first;
  }

  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, uintptr_t> pieces_;  // ends of the pieces, by their begin
};

}  // namespace muster::trainer::cuda
