// Who made the processor: where measurements of one maker's say nothing about the other's.
#pragma once

namespace muster::trainer::cpu {

inline bool is_intel() {
#if defined(__x86_64__)
  static const bool intel = __builtin_cpu_is("intel") != 0;
  return intel;
#else
  return false;
#endif
}

}  // namespace muster::trainer::cpu
