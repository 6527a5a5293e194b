// Readable names of C++ symbols.
#pragma once

#include <cstddef>
#include <string>

namespace muster::worker {

// Returns `symbol`, demangled if it is a mangled name; printable, at most `bytes_max` long. Uses
// Abseil's demangler instead of abi::__cxa_demangle: that one can expand a few hundred bytes of
// symbol to gigabytes, and Abseil's omits template and function arguments, so names fit in a line.
std::string demangled(const char* symbol, size_t bytes_max);

// Returns `text` as one printable line; longer than `bytes_max`: cut, ending in "…".
std::string bounded_text(std::string text, size_t bytes_max);

}  // namespace muster::worker
