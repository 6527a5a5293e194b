#include "common/text/escape.h"

#include <algorithm>
#include <cstdint>

namespace muster {
namespace {

// Returns the length in bytes of the UTF-8 character at text[0]; 0 if none begins there.
size_t character_bytes(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  const size_t size = lead < 0x80   ? 1
                      : lead < 0xC2 ? 0
                      : lead < 0xE0 ? 2
                      : lead < 0xF0 ? 3
                      : lead < 0xF5 ? 4
                                    : 0;
  if (size > text.size()) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((static_cast<uint8_t>(text[i]) & 0xC0) != 0x80) return 0;
  }
  if (size < 3) return size;
  // Rejects overlong encodings, surrogates, and code points above U+10FFFF.
  const auto second = static_cast<uint8_t>(text[1]);
  const bool is_valid = lead == 0xE0   ? second >= 0xA0
                        : lead == 0xED ? second < 0xA0
                        : lead == 0xF0 ? second >= 0x90
                        : lead == 0xF4 ? second < 0x90
                                       : true;
  return is_valid ? size : 0;
}

bool is_control(uint32_t code, Layout layout) {
  if (layout == Layout::kLines && (code == '\n' || code == '\t')) return false;
  return code < 0x20 || (code >= 0x7F && code < 0xA0);
}

void append_escaped(uint32_t code, std::string& out) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += {'\\', 'x', kDigits[code >> 4 & 0xF], kDigits[code & 0xF]};
}

}  // namespace

std::string escape_controls(std::string_view text, Layout layout) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t character = character_bytes(text);
    const size_t size = std::max<size_t>(character, 1);
    // The second byte of a C1 control's UTF-8 (C2 80 to C2 9F) is its code.
    const bool is_c1 = character == 2 && text[0] == '\xC2';
    const auto code = static_cast<uint8_t>(is_c1 ? text[1] : text[0]);
    if ((size == 1 || is_c1) && is_control(code, layout)) {
      append_escaped(code, out);
    } else {
      out += text.substr(0, size);
    }
    text.remove_prefix(size);
  }
  return out;
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = character_bytes(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t size = character_bytes(text);
    if (size == 0) append_escaped(static_cast<uint8_t>(text[0]), out);
    out += text.substr(0, size);
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return out;
}

std::string shell_quoted(std::string_view text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("%+,-./:=@_").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string word = "'";
  for (const char c : text) c == '\'' ? word += "'\\''" : word += c;
  return word + "'";
}

std::string printable(std::string_view text, size_t bytes_max) {
  const auto is_plain = [](char c) { return c >= ' ' && c < '\x7F'; };
  if (text.size() <= bytes_max && std::all_of(text.begin(), text.end(), is_plain))
    return std::string(text);
  constexpr std::string_view kCut = "…";
  std::string out;
  size_t whole = 0;  // length of `out` that leaves room for the mark
  while (!text.empty() && out.size() <= bytes_max) {
    if (out.size() + kCut.size() <= bytes_max) whole = out.size();
    const size_t size = character_bytes(text);
    if (size == 0) {
      append_escaped(static_cast<uint8_t>(text[0]), out);
    } else {
      out += escape_controls(text.substr(0, size), Layout::kOneLine);
    }
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  if (out.size() <= bytes_max) return out;
  out.resize(whole);
  out += kCut;
  return out;
}

}  // namespace muster
