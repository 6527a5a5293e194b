// Normal forms. Their tokens are compared with `tokenizers` and `tiktoken` in byte_bpe_test.cc.
#include "trainer_core/data/unicode_form.h"

#include <utf8proc.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/unit/mutate.h"

namespace muster::trainer {
namespace {

std::string in_form(UnicodeForm form, std::string_view text) {
  return std::string(UnicodeNormalizer(form).apply(text));
}

struct Forms {
  std::string_view text, nfc, nfd, nfkc, nfkd;
};

// Examples of UAX #15, and of the exclusions from composition.
TEST(UnicodeForm, TheFourFormsOfATable) {
  const Forms table[] = {
      {"", "", "", "", ""},
      {"plain", "plain", "plain", "plain", "plain"},
      {"\u00e9", "\u00e9", "e\u0301", "\u00e9", "e\u0301"},
      {"e\u0301x", "\u00e9x", "e\u0301x", "\u00e9x", "e\u0301x"},
      {"q\u0307\u0323", "q\u0323\u0307", "q\u0323\u0307", "q\u0323\u0307", "q\u0323\u0307"},
      {"\u1e9b\u0323", "\u1e9b\u0323", "\u017f\u0323\u0307", "\u1e69", "s\u0323\u0307"},
      {"\ufb01", "\ufb01", "\ufb01", "fi", "fi"},
      {"\u212b", "\u00c5", "A\u030a", "\u00c5", "A\u030a"},
      {"\u0958", "\u0915\u093c", "\u0915\u093c", "\u0915\u093c", "\u0915\u093c"},
      {"\u1100\u1161\u11a8", "\uac01", "\u1100\u1161\u11a8", "\uac01", "\u1100\u1161\u11a8"},
      {"\u304b\u3099", "\u304c", "\u304b\u3099", "\u304c", "\u304b\u3099"},
      {std::string_view("a\0\u0301", 4), std::string_view("a\0\u0301", 4),
       std::string_view("a\0\u0301", 4), std::string_view("a\0\u0301", 4),
       std::string_view("a\0\u0301", 4)},
  };
  for (const Forms& one : table) {
    EXPECT_EQ(in_form(UnicodeForm::kNfc, one.text), one.nfc) << one.text;
    EXPECT_EQ(in_form(UnicodeForm::kNfd, one.text), one.nfd) << one.text;
    EXPECT_EQ(in_form(UnicodeForm::kNfkc, one.text), one.nfkc) << one.text;
    EXPECT_EQ(in_form(UnicodeForm::kNfkd, one.text), one.nfkd) << one.text;
  }
}

TEST(UnicodeForm, NamesAreThoseOfTheFiles) {
  EXPECT_EQ(unicode_form_named("NFC"), UnicodeForm::kNfc);
  EXPECT_EQ(unicode_form_named("NFKD"), UnicodeForm::kNfkd);
  EXPECT_EQ(unicode_form_named("nfc"), std::nullopt);
  EXPECT_EQ(unicode_form_named("Lowercase"), std::nullopt);
}

TEST(UnicodeForm, IllFormedPiecesStayAsTheyAre) {
  EXPECT_EQ(in_form(UnicodeForm::kNfc, "a\xE1\x80 e\u0301 \xCC"), "a\xE1\x80 \u00e9 \xCC");
}

// Property: piece by piece, with buffers of earlier texts, equals the library on the whole text.
TEST(UnicodeForm, PiecesEqualTheWholeText) {
  Mutator random(28);
  const std::pair<uint32_t, uint32_t> ranges[] = {
      {0x20, 0x7e},     {0xc0, 0x24f},    {0x300, 0x36f},   {0x300, 0x345},     {0x590, 0x6ff},
      {0x900, 0xdff},   {0x1100, 0x11ff}, {0x1e00, 0x1fff}, {0x2100, 0x214f},   {0x3040, 0x30ff},
      {0xac00, 0xad00}, {0xf900, 0xfb4f}, {0xff00, 0xffef}, {0x1d15e, 0x1d1c0}, {0x2f800, 0x2fa1d}};
  for (const auto& [form, options] :
       {std::pair(UnicodeForm::kNfc, UTF8PROC_STABLE | UTF8PROC_COMPOSE),
        std::pair(UnicodeForm::kNfd, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE),
        std::pair(UnicodeForm::kNfkc, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT),
        std::pair(UnicodeForm::kNfkd, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT)}) {
    UnicodeNormalizer normalizer(form);
    for (int round = 0; round < 2000; ++round) {
      std::string text;
      for (uint64_t left = random.draw(30); left > 0; --left) {
        const auto& [low, high] = ranges[random.draw(std::size(ranges))];
        utf8proc_uint8_t bytes[4];
        const auto character = static_cast<utf8proc_int32_t>(low + random.draw(high - low + 1));
        const auto size = utf8proc_encode_char(character, bytes);
        text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
      }
      utf8proc_uint8_t* whole = nullptr;
      const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                     static_cast<utf8proc_ssize_t>(text.size()), &whole,
                                     static_cast<utf8proc_option_t>(options));
      ASSERT_GE(size, 0);
      const std::string expected(reinterpret_cast<const char*>(whole), static_cast<size_t>(size));
      std::free(whole);
      ASSERT_EQ(normalizer.apply(text), expected) << text;
      ASSERT_EQ(normalizer.apply(expected), expected) << "applied twice";
    }
  }
}

}  // namespace
}  // namespace muster::trainer
