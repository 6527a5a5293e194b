#include "trainer_core/chat/characters.h"

#include <utf8proc.h>

#include <algorithm>

#include "trainer_core/data/utf8.h"

namespace muster::trainer::chat {
namespace {

size_t width_at(const char* at) {
  const auto first = static_cast<uint8_t>(*at);
  return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

utf8proc_category_t category(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

bool is_cased(char32_t character) {
  const auto kind = category(character);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT;
}

// The simple mappings of Unicode. Python's full ones differ for about a hundred characters, of
// which texts have "ß" ("SS").
void append_upper(char32_t character, std::string& out) {
  if (character == U'ß') {
    out += "SS";
  } else {
    append_character(
        static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(character))), out);
  }
}

void append_title(char32_t character, std::string& out) {
  if (character == U'ß') {
    out += "Ss";
  } else {
    append_character(
        static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(character))), out);
  }
}

void append_lower(char32_t character, std::string& out) {
  append_character(
      static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))), out);
}

bool is_in(char32_t character, std::optional<std::string_view> set) {
  if (!set) return is_space(character);
  for (const char32_t candidate : Characters(*set)) {
    if (candidate == character) return true;
  }
  return false;
}

size_t last_width(std::string_view text) {
  size_t width = 1;
  while (width < text.size() && (static_cast<uint8_t>(text[text.size() - width]) & 0xC0) == 0x80)
    ++width;
  return width;
}

bool is_line_end(char32_t c) {
  return (c >= U'\n' && c <= U'\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

char32_t Characters::Iterator::operator*() const {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(at_[i])); };
  switch (width_at(at_)) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3:
      return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default:
      return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
             (byte(3) & 0x3F);
  }
}

Characters::Iterator& Characters::Iterator::operator++() {
  at_ += width_at(at_);
  return *this;
}

void append_character(char32_t character, std::string& out) {
  const auto code = static_cast<uint32_t>(character);
  const auto add = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0 | code >> 6);
    add(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    add(0xE0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  } else {
    add(0xF0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3F));
    add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  }
}

bool is_space(char32_t c) {
  return c == U' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F) || c == 0x85 ||
         (c >= 0x80 && category(c) == UTF8PROC_CATEGORY_ZS) || c == 0x2028 || c == 0x2029;
}

bool is_printable(char32_t c) {
  if (c == U' ') return true;
  const auto kind = category(c);
  return kind != UTF8PROC_CATEGORY_CC && kind != UTF8PROC_CATEGORY_CF &&
         kind != UTF8PROC_CATEGORY_CS && kind != UTF8PROC_CATEGORY_CO &&
         kind != UTF8PROC_CATEGORY_CN && kind != UTF8PROC_CATEGORY_ZL &&
         kind != UTF8PROC_CATEGORY_ZP && kind != UTF8PROC_CATEGORY_ZS;
}

bool is_letter(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT || kind == UTF8PROC_CATEGORY_LM ||
         kind == UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 ||
         c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
}

size_t character_count(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; }));
}

size_t offset_of(std::string_view text, size_t position) {
  size_t offset = 0;
  for (; position > 0 && offset < text.size(); --position) offset += width_at(text.data() + offset);
  return offset;
}

std::string_view strip(std::string_view text, std::optional<std::string_view> set, bool left,
                       bool right) {
  while (left && !text.empty() && is_in(*Characters(text).begin(), set))
    text.remove_prefix(width_at(text.data()));
  while (right && !text.empty()) {
    const size_t width = last_width(text);
    if (!is_in(*Characters(text.substr(text.size() - width)).begin(), set)) break;
    text.remove_suffix(width);
  }
  return text;
}

std::vector<std::string_view> split_spaces(std::string_view text, int64_t splits_max) {
  std::vector<std::string_view> parts;
  for (text = strip(text, {}, true, false); !text.empty(); text = strip(text, {}, true, false)) {
    if (splits_max >= 0 && static_cast<int64_t>(parts.size()) == splits_max) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size() && !is_space(*Characters(text.substr(end)).begin()))
      end += width_at(text.data() + end);
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    int64_t splits_max, bool from_right) {
  std::vector<std::string_view> parts;
  while (splits_max < 0 || static_cast<int64_t>(parts.size()) < splits_max) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    const std::string_view after = text.substr(at + separator.size());
    parts.push_back(from_right ? after : text.substr(0, at));
    text = from_right ? text.substr(0, at) : after;
  }
  parts.push_back(text);
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = *Characters(text.substr(at)).begin();
    const size_t end = at;
    at += width_at(text.data() + at);
    if (!is_line_end(c)) continue;
    if (c == U'\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t count) {
  std::string out;
  int64_t done = 0;
  while (count < 0 || done < count) {
    if (from.empty()) {
      // Python inserts `to` before each character and at the end.
      out += to;
      ++done;
      if (text.empty()) return out;
      const size_t width = width_at(text.data());
      out += text.substr(0, width);
      text.remove_prefix(width);
      continue;
    }
    const size_t at = text.find(from);
    if (at == std::string_view::npos) break;
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
    ++done;
  }
  out += text;
  return out;
}

std::string upper(std::string_view text) {
  std::string out;
  for (const char32_t c : Characters(text)) append_upper(c, out);
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  for (const char32_t c : Characters(text)) append_lower(c, out);
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  bool is_first = true;
  for (const char32_t c : Characters(text)) {
    if (is_first) {
      append_title(c, out);
    } else {
      append_lower(c, out);
    }
    is_first = false;
  }
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool after_cased = false;
  for (const char32_t c : Characters(text)) {
    if (after_cased) {
      append_lower(c, out);
    } else {
      append_title(c, out);
    }
    after_cased = is_cased(c);
  }
  return out;
}

}  // namespace muster::trainer::chat
