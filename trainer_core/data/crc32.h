// The checksum of the header, tokens and documents of a shard: zlib's CRC-32.
#pragma once

#include <cstddef>
#include <cstdint>

#include <zlib.h>

namespace muster::trainer {

// Returns the CRC-32 of `bytes` bytes at `data`. `start` is the CRC of the bytes before them; 0:
// there are none.
inline uint32_t crc32_of(const void* data, size_t bytes, uint32_t start = 0) {
  return static_cast<uint32_t>(crc32_z(start, static_cast<const Bytef*>(data), bytes));
}

}  // namespace muster::trainer
