// Detects a disk without space for further output of ranks.
#pragma once

#include <cstdint>
#include <string>

#include "common/files/free_space.h"

namespace muster::worker {

// A disk with fewer free bytes counts as full, because programs write in blocks.
constexpr uint64_t kFullDiskBytes = 64 << 10;

// Returns whether the disk of an existing folder is full. May block in the file system.
inline bool is_disk_full(const std::string& folder) {
  const auto free = free_space_bytes(folder);
  return free.has_value() && *free < kFullDiskBytes;
}

}  // namespace muster::worker
