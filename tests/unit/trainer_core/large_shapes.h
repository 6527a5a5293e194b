// Whether a test program may use shapes that take long on a slow device.
#pragma once

namespace muster::trainer {

// Returns false on the emulated device and under a sanitizer of the GPU. Defined by cpu_device.cc,
// or by a test program for another backend.
bool large_shapes();

}  // namespace muster::trainer
