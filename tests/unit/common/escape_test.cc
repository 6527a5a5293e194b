#include "common/escape.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(EscapeControls, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(escape_controls("a\x1b[2Jb\rc\b\x07\x7f"), R"(a\x1b[2Jb\x0dc\x08\x07\x7f)");
  EXPECT_EQ(escape_controls(std::string_view("\0x", 2)), R"(\x00x)");
  EXPECT_EQ(escape_controls("\xC2\x9B"
                            "31m \x9B"
                            "31m"),
            R"(\x9b31m \x9b31m)")
      << "as UTF-8 and as one byte";
}

TEST(EscapeControls, LeavesTextAlone) {
  const std::string text = "one\ttwo\nnaïve \xC2\xA0 世界 \xF0\x9F\x8C\x8D č“ˇ";
  EXPECT_EQ(escape_controls(text), text) << "continuation bytes from 80 to 9f are no controls";
  EXPECT_EQ(escape_controls("\xFF\xC3"), "\xFF\xC3");
  EXPECT_EQ(escape_controls("\xE4\xB8"), "\xE4\xB8");
  EXPECT_EQ(escape_controls("\xE4\x80"), "\xE4\\x80") << "of a character that is cut off";
  EXPECT_EQ(escape_controls(""), "");
  EXPECT_EQ(escape_controls("one\ttwo\n", Layout::kOneLine), R"(one\x09two\x0a)");
}

}  // namespace
}  // namespace muster
