#include "trainer_core/data/utf8.h"

#include <algorithm>
#include <cstring>

namespace muster::trainer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr size_t kCharacterBytesMax = 4;

bool eight_ascii_bytes(const char* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return (word & 0x8080808080808080ULL) == 0;
}

bool continues(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// The length of a character whose first byte is `first`, and the bounds of its second byte, which
// exclude overlong forms, surrogates and values above U+10FFFF (Unicode Standard, table 3-7). If
// `bytes` is 0, no character begins with `first`.
struct Lead {
  size_t bytes = 0;
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

Lead lead_of(uint8_t first) {
  if (first < 0x80) return {1};
  if (first < 0xC2 || first > 0xF4) return {0};
  if (first < 0xE0) return {2};
  if (first == 0xE0) return {3, 0xA0};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first < 0xF0) return {3};
  if (first == 0xF0) return {4, 0x90};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {4};
}

// Calls take(offset, step) for each ill-formed piece.
template <class Take>
void for_each_invalid(std::string_view text, const Take& take) {
  size_t i = 0;
  while (i < text.size()) {
    if (i + 8 <= text.size() && eight_ascii_bytes(text.data() + i)) {
      i += 8;
      continue;
    }
    const Utf8Step step = next_utf8(text.substr(i, kCharacterBytesMax));
    if (!step.is_valid) take(i, step.bytes);
    i += step.bytes;
  }
}

}  // namespace

Utf8Step next_utf8(std::string_view text) {
  const Lead lead = lead_of(static_cast<uint8_t>(text[0]));
  if (lead.bytes == 0) return {1, false};
  size_t bytes = 1;
  for (; bytes < lead.bytes && bytes < text.size(); ++bytes) {
    const auto next = static_cast<uint8_t>(text[bytes]);
    const bool fits =
        bytes > 1 ? continues(text[bytes]) : next >= lead.second_min && next <= lead.second_max;
    if (!fits) break;
  }
  return {bytes, bytes == lead.bytes};
}

Utf8Report scan_utf8(std::string_view text) {
  Utf8Report report;
  for_each_invalid(text, [&report](size_t at, size_t bytes) {
    if (report.invalid_bytes == 0) report.first_invalid = at;
    report.invalid_bytes += bytes;
  });
  return report;
}

std::string repair_utf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  size_t done = 0;
  for_each_invalid(text, [&](size_t at, size_t bytes) {
    repaired += text.substr(done, at - done);
    repaired += kReplacement;
    done = at + bytes;
  });
  repaired += text.substr(done);
  return repaired;
}

size_t utf8_boundary(std::string_view text, size_t end) {
  if (end >= text.size()) return end;
  size_t begin = end;
  while (begin > 0 && end - begin < kCharacterBytesMax - 1 && continues(text[begin])) --begin;
  const Utf8Step step = next_utf8(text.substr(begin, kCharacterBytesMax));
  return step.is_valid && begin + step.bytes > end ? begin : end;
}

}  // namespace muster::trainer
