// The checksum of a shard's header, tokens and documents: zlib's CRC-32.
#pragma once

#include <cstddef>
#include <cstdint>

#include <zlib.h>

namespace muster::trainer {

// Returns the CRC of `bytes` bytes at `data`, continuing from `start`.
inline uint32_t crc32_of(const void* data, size_t bytes, uint32_t start = 0) {
  return static_cast<uint32_t>(crc32_z(start, static_cast<const Bytef*>(data), bytes));
}

}  // namespace muster::trainer
