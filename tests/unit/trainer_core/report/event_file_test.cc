#include "trainer_core/report/event_file.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "trainer_core/base/crc32c.h"

namespace muster::trainer {
namespace {

// Reads the files of a folder as TensorBoard does, and verifies the checksums of their records.
std::vector<std::string> records(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ostringstream text;
    text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    const std::string bytes = text.str();
    size_t at = 0;
    while (at < bytes.size()) {
      size_t length = 0;
      for (int i = 7; i >= 0; --i)
        length = length << 8 | static_cast<unsigned char>(bytes[at + static_cast<size_t>(i)]);
      found.push_back(bytes.substr(at + 12, length));
      EXPECT_EQ(bytes.substr(at, length + 16), tfrecord_frame(found.back()));
      at += length + 16;
    }
  }
  return found;
}

TEST(EventFileTest, AFrameHasItsLengthAndTwoMaskedChecksums) {
  const std::string frame = tfrecord_frame("123456789");
  ASSERT_EQ(frame.size(), 8 + 4 + 9 + 4);
  EXPECT_EQ(frame.substr(0, 8), std::string("\x09\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(frame.substr(12, 9), "123456789");
  // RFC 3720's check value, rotated by 15 bits and offset.
  const uint32_t masked = masked_crc32c(0xE3069283U);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(static_cast<unsigned char>(frame[21 + i]), masked >> (8 * i) & 0xFF);
}

// Expected bytes written by hand from the messages' field numbers; tests/e2e/test_tensorboard.py
// reads such a file with the real TensorBoard.
TEST(EventFileTest, ScalarEventsFollowAVersionAndAStart) {
  const TempFolder folder;
  const std::string events = folder.file("run/tensorboard");
  auto file = EventFile::open(events, 1'500'000'000);
  ASSERT_TRUE(file.ok()) << file.status();
  (*file)->write(300, 2'500'000'000, {{"a/b", 1.5}});
  (*file)->write(301, 2'500'000'000, {});
  const std::vector<std::string> found = records(events);
  ASSERT_EQ(found.size(), 4U);
  const std::string at_1_5("\x09\0\0\0\0\0\0\xF8\x3F", 9), at_2_5("\x09\0\0\0\0\0\0\x04\x40", 9);
  const std::string step_300("\x10\xAC\x02", 3), step_301("\x10\xAD\x02", 3);
  EXPECT_EQ(found[0], at_1_5 + "\x1A\x0D" + "brain.Event:2");
  EXPECT_EQ(found[1], at_2_5 + step_300 + std::string("\x3A\x02\x08\x01", 4));
  EXPECT_EQ(found[2], at_2_5 + step_300 + "\x2A\x0C\x0A\x0A\x0A\x03" + "a/b" +
                          std::string("\x15\0\0\xC0\x3F", 5));
  EXPECT_EQ(found[3], at_2_5 + step_301 + std::string("\x2A\0", 2));
}

TEST(EventFileTest, AFolderThatCannotBeCreatedIsNamed) {
  const TempFolder folder;
  std::ofstream(folder.file("file")) << "x";
  const auto file = EventFile::open(folder.file("file/tensorboard"), 1);
  EXPECT_FALSE(file.ok());
  EXPECT_THAT(
      std::string(file.status().message()),
      testing::HasSubstr("enable_tensorboard: cannot open " + folder.file("file/tensorboard")));
}

}  // namespace
}  // namespace muster::trainer
