// CRC-32C (Castagnoli, RFC 3720 appendix B.4) and the masked form that TFRecord files store. zlib's
// CRC-32 is a different checksum: it uses another polynomial.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster::trainer {

// Returns the CRC-32C of `bytes`.
uint32_t crc32c(std::string_view bytes);

// Returns the masked form that TFRecord files store: the CRC rotated by 15 bits plus a constant.
// The mask exists because a CRC over bytes that contain their own CRC detects few errors.
constexpr uint32_t masked_crc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U; }

}  // namespace muster::trainer
