// CRC-32C (Castagnoli, RFC 3720 appendix B.4) and TFRecord's mask of it. zlib's CRC-32 uses another
// polynomial.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster::trainer {

uint32_t crc32c(std::string_view bytes);

// The form that TFRecord stores. A checksum over bytes that contain checksums is weak, so the CRC
// is rotated by 15 bits and offset.
constexpr uint32_t masked_crc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U; }

}  // namespace muster::trainer
