#include "trainer_core/data/text_file.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

std::string problem(std::string_view text) {
  TextCheck check;
  check.add(text, 0);
  return std::string(check.status("f.txt").message());
}

TEST(TextFile, OpensTextAndRefusesOtherFiles) {
  TempFolder folder;
  write_file(folder.file("a.txt"), "In the beginning\n");
  auto file = TextFile::open(folder.file("a.txt"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->text(), "In the beginning\n");
  write_file(folder.file("empty.txt"), "");
  EXPECT_THAT(std::string(TextFile::open(folder.file("empty.txt")).status().message()),
              HasSubstr("empty.txt is empty"));
  EXPECT_EQ(TextFile::open(folder.path()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TextFile::open(folder.file("none.txt")).status().code(), absl::StatusCode::kNotFound);
}

TEST(TextCheck, TextPasses) {
  EXPECT_EQ(problem("plain ASCII that is longer than eight bytes\n"), "");
  EXPECT_EQ(problem("Grüße, мир, 世界, 🌍, ąęłó\n"), "");
  EXPECT_EQ(problem(std::string(500, 'a').append(1, '\xFF').append(500, 'b')),
            "");  // an invalid byte
}

TEST(TextCheck, BinaryIsRefused) {
  EXPECT_THAT(problem(std::string_view("abc\0def", 7)), HasSubstr("NUL byte at offset 3"));
  EXPECT_THAT(problem("\x89PNG\r\n\x1a\n\xff\xfe\xc0\x80"), HasSubstr("not UTF-8"));
  EXPECT_THAT(problem("\xC0\xAF\xED\xA0\x80\xF5\x80\x80\x80"),
              HasSubstr("9 of 9 bytes are invalid, the first at offset 0"));
  EXPECT_THAT(problem(" \n\t\r\n"), HasSubstr("nothing but blanks"));
}

}  // namespace
}  // namespace muster::trainer
