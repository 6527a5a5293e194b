// Conversion of addresses that arrive as numbers from the processor, the kernel or another process.
// They were never pointers of this process, so the compiler's pointer provenance loses nothing.
#pragma once

#include <cstdint>

namespace muster {

// Returns `address` as the pointer type that system calls take. The address may belong to another
// process.
inline void* pointer_at(uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace muster
