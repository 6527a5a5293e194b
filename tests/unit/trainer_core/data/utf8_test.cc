#include "trainer_core/data/utf8.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

// Expected: the results of Python's bytes.decode("utf-8", "replace").
TEST(Utf8, RepairsLikeOtherDecoders) {
  const std::string u = "\xEF\xBF\xBD";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"plain", "plain"},
      {"Grüße, мир, 世界, 🌍", "Grüße, мир, 世界, 🌍"},
      {"a\xFF"
       "b",
       "a" + u + "b"},
      {"\xC0\xAF", u + u},                  // overlong: neither byte begins a character
      {"\xE0\x80\x80", u + u + u},          // overlong
      {"\xED\xA0\x80", u + u + u},          // a surrogate
      {"\xF4\x90\x80\x80", u + u + u + u},  // beyond U+10FFFF
      {"\xF0\x9F\x8C", u},                  // cut at the end: one piece
      {"\xF0\x9F\x8C"
       "12345678",
       u + "12345678"},  // cut in the middle
      {"\xE4\xB8"
       "\xE4\xB8\x96",
       u + "世"},
      {"12345678\x80"
       "12345678\xC3",
       "12345678" + u + "12345678" + u},
  };
  for (const auto& [text, repaired] : cases) {
    EXPECT_EQ(repair_utf8(text), repaired);
    EXPECT_EQ(scan_utf8(text).invalid_bytes == 0, text == repaired);
    EXPECT_EQ(scan_utf8(repaired).invalid_bytes, 0U);
  }
  EXPECT_EQ(scan_utf8("12345678\xF0\x9F\x8C"
                      "a\xFF")
                .invalid_bytes,
            4U);
  EXPECT_EQ(scan_utf8("12345678\xF0\x9F\x8C"
                      "a\xFF")
                .first_invalid,
            8U);
}

TEST(Utf8, ABoundaryDoesNotSplitACharacter) {
  const std::string text = "aé世🌍\x80z";
  const std::vector<size_t> expected = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 12};
  for (size_t end = 0; end < expected.size(); ++end)
    EXPECT_EQ(utf8_boundary(text, end), expected[end]) << end;
}

}  // namespace
}  // namespace muster::trainer
