#include "trainer_core/data/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

namespace muster::trainer {
namespace {

constexpr std::array<std::pair<std::string_view, UnicodeForm>, 4> kForms = {{
    {"NFC", UnicodeForm::kNfc},
    {"NFD", UnicodeForm::kNfd},
    {"NFKC", UnicodeForm::kNfkc},
    {"NFKD", UnicodeForm::kNfkd},
}};

utf8proc_option_t options_of(UnicodeForm form) {
  const bool composes = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  const bool is_compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE |
                                        (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (is_compatible ? UTF8PROC_COMPAT : 0));
}

bool is_ascii(char c) { return static_cast<uint8_t>(c) < 0x80; }

// Returns the lowest first byte of a character that the form may change. NFC keeps everything below
// U+0300, the first combining mark; the other forms keep ASCII.
uint8_t first_byte_to_check(UnicodeForm form) { return form == UnicodeForm::kNfc ? 0xCC : 0x80; }

}  // namespace

std::optional<UnicodeForm> unicode_form_named(std::string_view name) {
  for (const auto& [form_name, form] : kForms)
    if (form_name == name) return form;
  return std::nullopt;
}

// No form changes an ASCII character or composes it with a preceding one. Thus a piece that begins
// with an ASCII character and ends before the next one is independent of the text around it.
std::string_view UnicodeNormalizer::apply(std::string_view text) {
  const uint8_t lowest = first_byte_to_check(form_);
  const auto may_change = [lowest](char c) { return static_cast<uint8_t>(c) >= lowest; };
  const char* const end = text.data() + text.size();
  const char* copied = text.data();
  out_.clear();
  for (const char* at = std::find_if(copied, end, may_change); at != end;
       at = std::find_if(copied, end, may_change)) {
    const char* begin = at;
    while (begin != copied && !is_ascii(*begin)) --begin;
    const char* const stop = std::find_if(at, end, is_ascii);
    out_.append(copied, begin);
    append(std::string_view(begin, static_cast<size_t>(stop - begin)));
    copied = stop;
  }
  if (copied == text.data()) return text;
  out_.append(copied, end);
  return out_;
}

void UnicodeNormalizer::append(std::string_view piece) {
  const auto* const bytes = reinterpret_cast<const utf8proc_uint8_t*>(piece.data());
  const auto size = static_cast<utf8proc_ssize_t>(piece.size());
  const utf8proc_option_t options = options_of(form_);
  // Each character of NFC fits; the other forms may need more room, which the result states.
  // One more entry for the zero byte that utf8proc_reencode() appends.
  characters_.resize(std::max(characters_.size(), piece.size() + 1));
  const auto decompose = [&] {
    return utf8proc_decompose(bytes, size, characters_.data(),
                              static_cast<utf8proc_ssize_t>(characters_.size()) - 1, options);
  };
  utf8proc_ssize_t count = decompose();
  if (count >= static_cast<utf8proc_ssize_t>(characters_.size())) {
    characters_.resize(static_cast<size_t>(count) + 1);
    count = decompose();
  }
  const utf8proc_ssize_t written =
      count < 0 ? count : utf8proc_reencode(characters_.data(), count, options);
  if (written < 0) {
    out_.append(piece);
    return;
  }
  out_.append(reinterpret_cast<const char*>(characters_.data()), static_cast<size_t>(written));
}

}  // namespace muster::trainer
