#include "trainer_core/text/byte_source.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/text/text_files.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

// Long enough for several buffers, and not too compressible.
std::string some_text(size_t bytes) {
  Mutator random(7);
  std::string text;
  while (text.size() < bytes) text += "line " + std::to_string(random.draw(1'000'000)) + "\n";
  return text;
}

absl::StatusOr<std::string> read_all(const std::string& path, size_t piece, uint64_t skip = 0) {
  auto source = ByteSource::open(path);
  if (!source.ok()) return source.status();
  if (auto status = (*source)->skip(skip); !status.ok()) return status;
  std::string all;
  std::string buffer(piece, '\0');
  for (;;) {
    const auto count = (*source)->read(buffer);
    if (!count.ok()) return count.status();
    if (*count == 0) break;
    all += buffer.substr(0, *count);
  }
  EXPECT_EQ((*source)->file_position(), std::filesystem::file_size(path));
  return all;
}

TEST(ByteSource, ReadsTheTextWithAnyCompression) {
  TempFolder folder;
  const std::string text = some_text(700'000);
  const size_t half = text.size() / 2;
  write_file(folder.file("plain"), text);
  write_file(folder.file("gz"), gzip(text));
  write_file(folder.file("members"), gzip(text.substr(0, half)) + gzip("") +
                                         gzip(text.substr(half)) + std::string(1000, '\0'));
  write_file(folder.file("zst"), zstd(text));
  write_file(folder.file("frames"), zstd(text.substr(0, half)) + zstd(text.substr(half)));
  for (const char* name : {"plain", "gz", "members", "zst", "frames"}) {
    for (const size_t piece : {777U, 1'000'000U}) {
      const auto all = read_all(folder.file(name), piece);
      ASSERT_TRUE(all.ok()) << name << ": " << all.status();
      EXPECT_TRUE(*all == text) << name;
    }
    const auto rest = read_all(folder.file(name), 4096, half + 13);
    ASSERT_TRUE(rest.ok()) << name << ": " << rest.status();
    EXPECT_TRUE(*rest == text.substr(half + 13)) << name;
    EXPECT_FALSE(read_all(folder.file(name), 4096, text.size() + 1).ok()) << name;
  }
  write_file(folder.file("empty"), "");
  EXPECT_EQ(*read_all(folder.file("empty"), 10), "");
}

TEST(ByteSource, EveryTruncationIsFoundAndNamesTheOffset) {
  TempFolder folder;
  const std::string text = some_text(2000);
  for (const std::string& good : {gzip(text), zstd(text)}) {
    for (size_t length = 4; length < good.size(); length += 7) {
      write_file(folder.file("cut"), good.substr(0, length));
      const auto all = read_all(folder.file("cut"), 4096);
      ASSERT_FALSE(all.ok()) << length;
      EXPECT_EQ(all.status().code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(all.status().message()),
                  HasSubstr("cut is damaged at offset " + std::to_string(length)));
    }
  }
}

TEST(ByteSource, DamageIsDetectedOrHarmless) {
  TempFolder folder;
  const std::string text = some_text(5000);
  int refused = 0;
  for (const std::string& good : {gzip(text), zstd(text)}) {
    for (size_t i = 4; i < good.size(); i += 5) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 0x10);
      write_file(folder.file("bad"), bad);
      const auto all = read_all(folder.file("bad"), 4096);
      if (all.ok()) {
        // The date and system in gzip's header.
        EXPECT_TRUE(*all == text) << i;
        continue;
      }
      ++refused;
      EXPECT_THAT(std::string(all.status().message()), HasSubstr("bad is damaged at offset "));
    }
  }
  EXPECT_GT(refused, 200);
  write_file(folder.file("junk"), gzip(text) + "what is this");
  EXPECT_THAT(std::string(read_all(folder.file("junk"), 4096).status().message()),
              HasSubstr("junk is damaged at offset"));
}

TEST(ByteSource, AnUnsupportedCompressionIsNamed) {
  TempFolder folder;
  const std::pair<std::string, std::string> cases[] = {
      {"BZh91AY&SY\x01\x02", "bzip2"}, {"BZh9\x17\x72\x45\x38\x50\x90", "bzip2"},
      {"\xFD\x37zXZ", "xz"},           {"PK\x03\x04\x14", "zip"},
      {"7z\xBC\xAF\x27\x1C", "7z"},    {"\x04\x22\x4D\x18\x64", "lz4"},
      {"\x02\x21\x4C\x18", "lz4"},     {"LZIP\x01", "lzip"},
      {{"\x5D\0\0\x80\0", 5}, "lzma"}, {"\x1F\x9D\x90", "compress (.Z)"},
      {"Rar!\x1A\x07", "rar"},         {"!<arch>\nx", "Unix archive"},
      {"x\x9C\x4B", "zlib"},           {"x\xDA\x4B", "zlib"},
      {{"x\x01\x4B\0", 4}, "zlib"},    {"\x27\xB5\x2F\xFD", "an early zstd (before 0.8)"}};
  for (const auto& [bytes, name] : cases) {
    write_file(folder.file("text"), bytes);
    const absl::Status status = ByteSource::open(folder.file("text")).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), folder.file("text") + " is compressed: " + name +
                                    " is not read; recompress it with zstd or gzip");
  }
  for (const std::string text :
       {"BZh is no magic", "PK", "7zip", "LZ4 4", "x^2 + y^2", "x\xC2\x9C"}) {
    write_file(folder.file("text"), text);
    EXPECT_EQ(*read_all(folder.file("text"), 10), text);
  }
}

TEST(ByteSource, AZstdFileMayBeginWithASkippableFrame) {
  TempFolder folder;
  write_file(folder.file("zst"),
             "\x50\x2A\x4D\x18\x04" + std::string(3, '\0') + "skip" + zstd("text"));
  EXPECT_EQ(*read_all(folder.file("zst"), 100), "text");
}

// A zstd frame with this window (RFC 8878, 3.1.1.1) and one raw block, "text".
std::string frame_with_window(int log) {
  return std::string("\x28\xB5\x2F\xFD\0", 5) + static_cast<char>((log - 10) << 3) +
         std::string("\x21\0\0", 3) + "text";
}

TEST(ByteSource, LongWindowsAreDecodedUpToTheLimit) {
  TempFolder folder;
  for (const int log : {10, 27, 28, 29, 30, 31}) {
    write_file(folder.file("zst"), frame_with_window(log));
    const auto all = read_all(folder.file("zst"), 100);
    ASSERT_TRUE(all.ok()) << log << ": " << all.status();
    EXPECT_EQ(*all, "text");
  }
  for (const auto& [log, bytes] : {std::pair{32, "4294967296"}, {33, "8589934592"}}) {
    write_file(folder.file("zst"), frame_with_window(log));
    const absl::Status status = read_all(folder.file("zst"), 100).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(HasSubstr(std::string("its zstd window is ") + bytes +
                                         " bytes, and at most "
                                         "2 GiB (--long=31) are decoded; recompress it"),
                               testing::Not(HasSubstr("damaged"))));
  }
}

// A window is filled while the frame is decoded: memory that runs out meanwhile is an error, not a
// kill.
TEST(ByteSource, AWindowThatDoesNotFitTheMemoryIsNamed) {
  constexpr int kMiB = 1 << 20;
  // Blocks of 128 KiB of one byte each.
  const auto frame = [](int log, int mib) {
    std::string bytes = frame_with_window(log).substr(0, 6);
    for (int i = 0; i < 8 * mib; ++i) {
      const uint32_t header = (uint32_t{128} << 13) | (1U << 1) | (i + 1 == 8 * mib ? 1U : 0U);
      for (int byte = 0; byte < 3; ++byte) bytes += static_cast<char>(header >> (8 * byte));
      bytes += 'x';
    }
    return bytes;
  };
  struct Case {
    const char* name;
    int log;
    int mib;
    int available_mib;  // in the control group
    bool fits;
  };
  const Case cases[] = {{"a large window of a small text", 31, 20, 10, true},
                        {"room for all", 31, 100, 500, true},
                        {"no room", 31, 100, 100, false},
                        {"no room for a smaller one", 27, 100, 64, false},
                        {"a small window", 23, 100, 64, true}};
  for (const Case& one : cases) {
    const TempFolder folder;
    write_file(folder.file("zst"), frame(one.log, one.mib));
    std::filesystem::create_directories(folder.file("proc/self"));
    std::filesystem::create_directories(folder.file("cgroup"));
    write_file(folder.file("proc/self/cgroup"), "0::/\n");
    write_file(folder.file("cgroup/memory.max"),
               std::to_string(int64_t{one.available_mib} * kMiB) + "\n");
    write_file(folder.file("cgroup/memory.current"), "0\n");
    auto source = ByteSource::open(folder.file("zst"),
                                   {.proc = folder.file("proc"), .cgroup = folder.file("cgroup")});
    ASSERT_TRUE(source.ok()) << source.status();
    absl::Status status;
    std::string buffer(kMiB, '\0');
    uint64_t bytes = 0;
    while (status.ok()) {
      const auto count = (*source)->read(buffer);
      status = count.status();
      if (!count.ok() || *count == 0) break;
      bytes += *count;
    }
    EXPECT_EQ(status.ok(), one.fits) << one.name << ": " << status;
    if (one.fits) {
      EXPECT_EQ(bytes, static_cast<uint64_t>(one.mib) * kMiB) << one.name;
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(HasSubstr("there is no memory for its zstd window of "),
                               HasSubstr("MiB are available (limited by "), HasSubstr("memory.max"),
                               HasSubstr("recompress it")));
  }
}

TEST(ByteSource, BytesBehindTheCompressedDataAreNamed) {
  TempFolder folder;
  const std::pair<std::string, const char*> cases[] = {
      {gzip("text") + "garbage", "the bytes behind the compressed data are not compressed"},
      {zstd("text") + "garbage", "the bytes behind the compressed data are not compressed"},
      {gzip("text") + zstd("text"), "the bytes behind the compressed data are zstd"},
      {zstd("text") + gzip("text"), "the bytes behind the compressed data are gzip"},
      {gzip("text") + "BZh91AY&SY", "the bytes behind the compressed data are bzip2"},
      {"\x50\x2A\x4D\x18" + std::string(4, '\0') + "\x04\x22\x4D\x18lz4",
       "the bytes behind the compressed data are lz4"},
      {gzip("text") + std::string(9, '\0') + "garbage", "are not compressed"},
      {zstd("text") + zstd("more") + "garbage", "are not compressed"}};
  for (const auto& [bytes, expected] : cases) {
    write_file(folder.file("text"), bytes);
    const absl::Status status = read_all(folder.file("text"), 100).status();
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(HasSubstr(expected), HasSubstr("is damaged at offset ")));
  }
  // These are whole: members, frames, padding, skippable frames.
  const std::string skippable = "\x5F\x2A\x4D\x18\x04" + std::string(3, '\0') + "skip";
  for (const std::string& bytes :
       {gzip("te") + gzip("") + gzip("xt"), zstd("te") + zstd("") + zstd("xt"),
        gzip("text") + std::string(512, '\0'), zstd("te") + skippable + zstd("xt") + skippable,
        skippable + skippable + zstd("text")}) {
    write_file(folder.file("text"), bytes);
    EXPECT_EQ(*read_all(folder.file("text"), 100), "text");
  }
}

TEST(ByteSource, PointersAndArchivesAreNamed) {
  TempFolder folder;
  write_file(folder.file("text"),
             "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n");
  EXPECT_THAT(std::string(ByteSource::open(folder.file("text")).status().message()),
              HasSubstr("this is a Git LFS pointer"));
  write_file(folder.file("text"), std::string(257, 'a') + "ustar" + std::string(300, '\0'));
  EXPECT_THAT(std::string(ByteSource::open(folder.file("text")).status().message()),
              HasSubstr("is a tar archive"));
}

// Texts by their names, and other formats by their content.
TEST(ByteSource, OtherFormatsAreNamedWithTheWayOut) {
  TempFolder folder;
  const std::pair<std::string, std::string> cases[] = {
      {"ARROW1\0\0", "is an Arrow file, which is not read; datasets.Dataset.from_file"},
      {{"\xFF\xFF\xFF\xFF\x10\0\0\0", 8}, "is an Arrow stream"},
      {"\x93NUMPY\x01", "is a NumPy array"},
      {"%PDF-1.7\n", "is a PDF document, which is not read; pdftotext"},
      {"SQLite format 3", "is an SQLite database"},
      {"\x89HDF\r\n", "is an HDF5 file"},
      {"\x80\x04\x95", "is a pickle of Python"}};
  for (const auto& [bytes, expected] : cases) {
    write_file(folder.file("text"), bytes);
    EXPECT_THAT(std::string(ByteSource::open(folder.file("text")).status().message()),
                HasSubstr(expected));
  }
}

TEST(ByteSource, OpensOnlyRegularFiles) {
  TempFolder folder;
  EXPECT_EQ(ByteSource::open(folder.file("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ByteSource::open(folder.path()).status().code(), absl::StatusCode::kInvalidArgument);
}

// A file that is truncated or appended to meanwhile must not be tokenized in part.
TEST(ByteSource, AFileThatChangesWhileItIsReadIsAnError) {
  TempFolder folder;
  const std::string text = some_text(10'000);
  const auto change_within = [&](const std::string& content, const auto& change) {
    const std::string path = folder.file("text");
    write_file(path, content);
    auto source = ByteSource::open(path);
    EXPECT_TRUE(source.ok()) << source.status();
    std::string buffer(1000, '\0');
    EXPECT_TRUE((*source)->read(buffer).ok());
    change(path);
    while (true) {
      const auto count = (*source)->read(buffer);
      if (!count.ok()) return count.status();
      if (*count == 0) return absl::OkStatus();
    }
  };
  const auto cut = [](const std::string& path) { std::filesystem::resize_file(path, 3000); };
  const auto append = [&](const std::string& path) { write_file(path, text + text); };
  const absl::Status status = change_within(text, cut);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("was changed while it was read: it ends at offset 3000 now, and had " +
                        std::to_string(text.size()) + " bytes"));
  EXPECT_FALSE(change_within(text, append).ok());
  EXPECT_TRUE(change_within(text, [](const std::string&) {}).ok());
}

}  // namespace
}  // namespace muster::trainer
