#include "worker/stacks/demangle.h"

#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include <absl/debugging/internal/demangle.h>

#include "common/text/escape.h"

namespace muster::worker {
namespace {

constexpr size_t kSymbolBytesMax = 64 << 10;
constexpr size_t kNameBytesMax = 4096;

}  // namespace

std::string demangled(const char* symbol, size_t bytes_max) {
  std::string name(symbol, strnlen(symbol, kSymbolBytesMax));
  std::array<char, kNameBytesMax> readable{};
  if (name.starts_with("_Z") &&
      absl::debugging_internal::Demangle(name.c_str(), readable.data(), readable.size())) {
    name = readable.data();
  }
  return bounded_text(std::move(name), bytes_max);
}

std::string bounded_text(std::string text, size_t bytes_max) {
  constexpr std::string_view kCut = "…";
  // Escaping makes text longer, never shorter.
  const bool cut = text.size() > bytes_max;
  if (cut) text.resize(bytes_max);
  text = escape_controls(text, Layout::kOneLine);
  if (!cut && text.size() <= bytes_max) return text;
  size_t keep = bytes_max - kCut.size();
  while (keep > 0 && (static_cast<unsigned char>(text[keep]) & 0xC0) == 0x80) --keep;
  text.resize(keep);
  return text.append(kCut);
}

}  // namespace muster::worker
