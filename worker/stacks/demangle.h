// Readable names of C++ symbols.
#pragma once

#include <cstddef>
#include <string>

namespace muster::worker {

// Returns `symbol`, demangled if it is a mangled name, made printable and at most `bytes_max` bytes
// long. Uses Abseil's demangler, because abi::__cxa_demangle can expand a symbol of a few hundred
// bytes to gigabytes. Abseil's demangler also omits template and function arguments, so that names
// fit in a line.
std::string demangled(const char* symbol, size_t bytes_max);

// Returns `text` as one printable line; a line longer than `bytes_max` is cut and ends in "…".
std::string bounded_text(std::string text, size_t bytes_max);

}  // namespace muster::worker
