// The vendor of the processor. Code that chooses by measurements needs it, because measurements on
// one vendor's processors do not apply to another's.
#pragma once

#include <cstdint>

namespace muster::trainer::cpu {

enum class Vendor : uint8_t { kIntel, kOther };

// Returns the vendor of this machine's processor. Tests pass the other vendor to cover its code
// paths.
inline Vendor this_vendor() {
#if defined(__x86_64__)
  static const bool intel = __builtin_cpu_is("intel") != 0;
  return intel ? Vendor::kIntel : Vendor::kOther;
#else
  return Vendor::kOther;
#endif
}

}  // namespace muster::trainer::cpu
