// Reads of a mapped file that another process may truncate meanwhile. The kernel answers a read of
// a missing page with SIGBUS, which would end the process without a message; read_mapped() abandons
// the read instead.
#pragma once

#include <cstddef>
#include <type_traits>

namespace muster::trainer {

// Runs `body(context)`, which reads [data, data + bytes). Returns false if a part was missing and
// `body` was abandoned at that point by a jump. Requires that `body` holds nothing that needs
// cleanup (locks, objects with destructors), since no cleanup runs. Thread-safe. A SIGBUS at any
// other address is handled as before.
bool read_mapped(const void* data, size_t bytes, void (*body)(void*), void* context);

// The same for a callable without arguments.
template <class Body>
bool read_mapped(const void* data, size_t bytes, Body&& body) {
  using Function = std::remove_reference_t<Body>;
  return read_mapped(
      data, bytes, [](void* context) { (*static_cast<Function*>(context))(); }, &body);
}

}  // namespace muster::trainer
