// Reading a mapped file that somebody may cut off meanwhile: the kernel answers such a read with SIGBUS, which would end the
// process without a word. Here the read is given up instead.
#pragma once

#include <cstddef>
#include <type_traits>

namespace muster::trainer {

// Runs `body(context)`, which reads [data, data + bytes); false when a part of it was not there, and the body was left at that
// point: it may call nothing that must be left in order (locks, destructors). Any thread. A SIGBUS from elsewhere takes
// its usual course.
bool read_mapped(const void* data, size_t bytes, void (*body)(void*), void* context);

template <class Body>
bool read_mapped(const void* data, size_t bytes, Body&& body) {
  using Function = std::remove_reference_t<Body>;
  return read_mapped(
      data, bytes, [](void* context) { (*static_cast<Function*>(context))(); }, &body);
}

}  // namespace muster::trainer
