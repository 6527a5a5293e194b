// Reads a mapped file that another process may truncate. The kernel answers such a read with
// SIGBUS, which would end the process without a message; here the read is abandoned instead.
#pragma once

#include <cstddef>
#include <type_traits>

namespace muster::trainer {

// Runs `body(context)`, which reads [data, data + bytes). Returns false if a part was missing and
// the body was abandoned at that point: it may hold nothing that needs cleanup (locks,
// destructors). Any thread. A SIGBUS from elsewhere is handled as usual.
bool read_mapped(const void* data, size_t bytes, void (*body)(void*), void* context);

template <class Body>
bool read_mapped(const void* data, size_t bytes, Body&& body) {
  using Function = std::remove_reference_t<Body>;
  return read_mapped(
      data, bytes, [](void* context) { (*static_cast<Function*>(context))(); }, &body);
}

}  // namespace muster::trainer
