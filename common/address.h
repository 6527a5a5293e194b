// Addresses that the processor, the kernel or another process tells by number. They are not made from pointers, so a compiler that follows
// where pointers come from loses nothing.
#pragma once

#include <cstdint>

namespace muster {

// `address`, which may be one of another process, as system calls take it.
inline void* pointer_at(uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace muster
