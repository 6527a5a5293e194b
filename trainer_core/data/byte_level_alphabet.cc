#include "trainer_core/data/byte_level_alphabet.h"

#include <array>
#include <cstdint>

#include "trainer_core/data/utf8.h"

namespace muster::trainer {
namespace {

constexpr bool is_printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr size_t kShifted = 256 - (0x7E - 0x21 + 1) - (0xAC - 0xA1 + 1) - (0xFF - 0xAE + 1);

// Returns the table of the bytes that U+0100 + i represent.
constexpr std::array<uint8_t, kShifted> make_shifted() {
  std::array<uint8_t, kShifted> bytes{};
  size_t next = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (!is_printable(byte)) bytes[next++] = static_cast<uint8_t>(byte);
  }
  return bytes;
}

constexpr std::array<uint8_t, kShifted> kShiftedBytes = make_shifted();

}  // namespace

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = next_utf8(text.substr(i));
    if (!step.is_valid || step.bytes > 2) return std::nullopt;
    const auto first = static_cast<uint8_t>(text[i]);
    const unsigned code = step.bytes == 1
                              ? first
                              : (first & 0x1FU) << 6 | (static_cast<uint8_t>(text[i + 1]) & 0x3FU);
    i += step.bytes;
    if (code < 256 && is_printable(static_cast<int>(code))) {
      bytes += static_cast<char>(code);
    } else if (code >= 256 && code < 256 + kShifted) {
      bytes += static_cast<char>(kShiftedBytes[code - 256]);
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

}  // namespace muster::trainer
