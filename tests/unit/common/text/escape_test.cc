#include "common/text/escape.h"

#include <cstdio>
#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(EscapeControls, EscapesWhatATerminalInterprets) {
  EXPECT_EQ(escape_controls("a\x1b[2Jb\rc\b\x07\x7f"), R"(a\x1b[2Jb\x0dc\x08\x07\x7f)");
  EXPECT_EQ(escape_controls(std::string_view("\0x", 2)), R"(\x00x)");
  EXPECT_EQ(escape_controls("\xC2\x9B"
                            "31m \x9B"
                            "31m"),
            R"(\x9b31m \x9b31m)")
      << "C1 controls, as UTF-8 and as single bytes";
}

TEST(EscapeControls, LeavesTextAlone) {
  const std::string text = "one\ttwo\nnaïve \xC2\xA0 世界 \xF0\x9F\x8C\x8D č“ˇ";
  EXPECT_EQ(escape_controls(text), text) << "continuation bytes from 80 to 9f are not controls";
  EXPECT_EQ(escape_controls("\xFF\xC3"), "\xFF\xC3");
  EXPECT_EQ(escape_controls("\xE4\xB8"), "\xE4\xB8");
  EXPECT_EQ(escape_controls("\xE4\x80"), "\xE4\\x80")
      << "a continuation byte of an incomplete character";
  EXPECT_EQ(escape_controls(""), "");
  EXPECT_EQ(escape_controls("one\ttwo\n", Layout::kOneLine), R"(one\x09two\x0a)");
}

// A shell prints the same word.
TEST(ShellQuoted, IsOneWordOfAShell) {
  EXPECT_EQ(shell_quoted("out/llama2-7b_x.y:z,a=1"), "out/llama2-7b_x.y:z,a=1");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("my model"), "'my model'");
  for (const std::string word :
       {"it's", "$(rm -rf x)", "~user", "a*b?[c]", "a\\b", "'", "\\'", "世界 \n!"}) {
    const std::string command = "printf %s " + shell_quoted(word);
    std::FILE* shell = popen(command.c_str(), "r");
    ASSERT_NE(shell, nullptr);
    std::string printed(100, '\0');
    printed.resize(std::fread(printed.data(), 1, printed.size(), shell));
    EXPECT_EQ(pclose(shell), 0);
    EXPECT_EQ(printed, word) << command;
  }
}

TEST(Printable, IsOneLineOfValidUtf8) {
  EXPECT_EQ(printable("naïve 世界\n\x1b\x7f", 100), R"(naïve 世界\x0a\x1b\x7f)");
  EXPECT_EQ(printable("\xFF\xE4\xB8", 100), R"(\xff\xe4\xb8)");
  EXPECT_EQ(printable("\xC0\x80 \xE0\x9F\xBF \xED\xA0\x80 \xF0\x8F\xBF\xBF \xF4\x90\x80\x80", 100),
            R"(\xc0\x80 \xe0\x9f\xbf \xed\xa0\x80 \xf0\x8f\xbf\xbf \xf4\x90\x80\x80)")
      << "overlong form, surrogate, beyond the last code point";
}

TEST(Printable, IsCutBetweenCharacters) {
  EXPECT_EQ(printable("123456", 6), "123456");
  EXPECT_EQ(printable("1234567", 6), "123…");
  EXPECT_EQ(printable("1世界界", 9), "1世…") << "cut before the complete character";
  EXPECT_EQ(printable("12\n4567", 7), "12…") << "an escape is not cut";
  EXPECT_EQ(printable("12\n4567", 9), "12\\x0a…");
  EXPECT_EQ(printable("1234", 3), "…");
}

}  // namespace
}  // namespace muster
