// Returns the 64-bit FNV-1a hash (Fowler, Noll and Vo). It identifies a file's contents if no
// attacker chooses them.
#pragma once

#include <cstdint>
#include <string_view>

namespace muster {

constexpr uint64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char byte : bytes) {
    hash ^= static_cast<uint8_t>(byte);
    hash *= 0x100000001B3ULL;
  }
  return hash;
}

}  // namespace muster
