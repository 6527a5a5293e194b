// The maker of the processor: measurements of one maker's processors do not carry over to the other's.
#pragma once

#include <cstdint>

namespace muster::trainer::cpu {

enum class Vendor : uint8_t { kIntel, kOther };

// The vendor of this machine's processor. Tests pass the other one to run its code paths here.
inline Vendor this_vendor() {
#if defined(__x86_64__)
  static const bool intel = __builtin_cpu_is("intel") != 0;
  return intel ? Vendor::kIntel : Vendor::kOther;
#else
  return Vendor::kOther;
#endif
}

}  // namespace muster::trainer::cpu
