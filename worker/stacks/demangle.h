// Readable names of C++ symbols.
#pragma once

#include <cstddef>
#include <string>

namespace muster::worker {

// `symbol` demangled when it is a mangled name, printable, at most `bytes_max` long. Abseil's demangler and not abi::__cxa_demangle: a
// few hundred bytes of symbol can stand for gigabytes of name, which that one makes; and without template and function arguments,
// as this one writes them, names can be read in a line.
std::string demangled(const char* symbol, size_t bytes_max);

// `text` printable and in one line; what is longer than `bytes_max` is cut and ends in "…".
std::string bounded_text(std::string text, size_t bytes_max);

}  // namespace muster::worker
