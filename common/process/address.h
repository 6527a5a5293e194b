// Converts addresses that the processor, the kernel or another process provides as integers. They
// were never pointers in this process, so the conversion cannot hide a pointer from the compiler's
// alias analysis.
#pragma once

#include <cstdint>

namespace muster {

// Returns `address` as the pointer type that system calls take. The address may belong to another
// process.
inline void* pointer_at(uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace muster
