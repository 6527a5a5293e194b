#include "trainer_core/text/chunk.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "tests/unit/mutate.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/text/text_files.h"
#include "trainer_core/text/tfrecord_chunks.h"

namespace muster::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Read {
  std::vector<std::string> texts;
  std::vector<std::string> places;
  std::vector<Position> ends;  // ends of chunks
  uint64_t cut = 0;
  uint64_t too_long = 0;
  absl::Status status;
};

class Chunks : public testing::Test {
 protected:
  void add_file(const std::string& name, const std::string& bytes) {
    write_file(folder_.file(name), bytes);
    auto found = find_input_files({{folder_.file(name)}}, std::nullopt);
    ASSERT_TRUE(found.ok()) << found.status();
    files_.push_back(found->files[0]);
  }

  Read read(const Position& from = {}) const {
    Read out;
    ChunkStream stream(files_, {documents_, "text"}, from);
    for (;;) {
      Chunk chunk;
      const auto more = stream.next(chunk);
      out.status = more.status();
      if (!more.ok() || !*more) break;
      for (const Record& record : chunk.records) {
        std::string_view text = chunk.text(record);
        if (files_[chunk.file].format == InputFormat::kTfRecord && !text.empty())
          text = *record_data(text);
        out.texts.emplace_back(text);
        out.places.push_back(location_of(files_[chunk.file], record));
        out.cut += record.is_cut ? 1 : 0;
        out.too_long += record.flaw == Flaw::kTooLong ? 1 : 0;
      }
      out.ends.push_back(chunk.end);
    }
    return out;
  }

  // The chunks after any chunk's end equal those of a run that begins there.
  void expect_resumable() const {
    const Read whole = read();
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    ASSERT_GT(whole.ends.size(), 1U);
    for (size_t i = 0; i < whole.ends.size(); ++i) {
      const Read rest = read(whole.ends[i]);
      ASSERT_TRUE(rest.status.ok()) << rest.status;
      ASSERT_EQ(rest.ends.size(), whole.ends.size() - i - 1);
      const auto skipped = static_cast<ptrdiff_t>(whole.texts.size() - rest.texts.size());
      EXPECT_TRUE(std::equal(rest.texts.begin(), rest.texts.end(), whole.texts.begin() + skipped));
      EXPECT_TRUE(
          std::equal(rest.places.begin(), rest.places.end(), whole.places.begin() + skipped));
    }
  }

  std::string place(const std::string& rest) const { return files_[0].path + rest; }

  TempFolder folder_;
  std::vector<InputFile> files_;
  DocumentUnit documents_ = DocumentUnit::kLines;
};

TEST_F(Chunks, LinesAreDocuments) {
  add_file("a.txt", "\xEF\xBB\xBFone\r\n\n \t\ntwo\nthree");
  const Read out = read();
  ASSERT_TRUE(out.status.ok()) << out.status;
  EXPECT_THAT(out.texts, ElementsAre("one", "two", "three"));
  EXPECT_THAT(out.places,
              ElementsAre(place(":1 (byte 3)"), place(":4 (byte 12)"), place(":5 (byte 16)")));
}

TEST_F(Chunks, ParagraphsAndFilesAreDocumentsOnRequest) {
  add_file("a.txt", "\n\none\r\ntwo\n\n\nthree\n \nfour\n");
  add_file("b.txt", "five\n\nsix\n");
  documents_ = DocumentUnit::kParagraphs;
  EXPECT_THAT(read().texts, ElementsAre("one\ntwo", "three", "four", "five", "six"));
  documents_ = DocumentUnit::kFiles;
  EXPECT_THAT(read().texts, ElementsAre("one\ntwo\n\n\nthree\n \nfour", "five\n\nsix"));
}

TEST_F(Chunks, ARunMayBeginAfterAnyChunk) {
  Mutator random(3);
  std::string lines;
  std::string records;
  while (lines.size() < (kSanitized ? 300'000 : 1'500'000)) {
    const std::string line = "number " + std::to_string(random.draw(1'000'000'000));
    lines += line + (random.draw(5) == 0 ? "\n\n" : "\n");
    records += tfrecord(line);
  }
  add_file("a.txt", lines);
  add_file("b.txt.gz", gzip(lines));
  add_file("empty.txt", "");
  add_file("c.jsonl.zst", zstd(lines));
  add_file("d.tfrecord", records);
  expect_resumable();
  documents_ = DocumentUnit::kParagraphs;
  expect_resumable();
}

TEST_F(Chunks, AnEndlessDocumentIsCut) {
  std::string text;
  while (text.size() < kDocumentBytesMax + 1000) text += "word after word ";
  add_file("long.txt", text + "\nshort\n");
  const Read out = read();
  ASSERT_TRUE(out.status.ok()) << out.status;
  ASSERT_EQ(out.texts.size(), 3U);
  EXPECT_EQ(out.cut, 1U);
  EXPECT_LT(out.texts[0].size(), kDocumentBytesMax);
  EXPECT_EQ(out.texts[1][0], ' ') << "cut before a blank";
  EXPECT_EQ(out.texts[0] + out.texts[1], text);
  EXPECT_EQ(out.texts[2], "short");
  EXPECT_EQ(out.places[2], place(":2 (byte " + std::to_string(text.size() + 1) + ")"));
  expect_resumable();
  // Characters are not split.
  std::string wide(1, 'a');
  while (wide.size() < kDocumentBytesMax + 1000) wide += "世";
  write_file(folder_.file("long.txt"), wide);
  const Read cut = read();
  ASSERT_EQ(cut.texts.size(), 2U);
  EXPECT_EQ(cut.texts[1].substr(0, 3), "世");
  EXPECT_EQ(cut.texts[0] + cut.texts[1], wide);
}

TEST_F(Chunks, AFileLongerThanADocumentIsCutBetweenLines) {
  std::string text;
  while (text.size() < 2 * kDocumentBytesMax + 1000) text += "one of very many lines\n\n";
  add_file("long.txt", text);
  documents_ = DocumentUnit::kFiles;
  const Read out = read();
  ASSERT_TRUE(out.status.ok()) << out.status;
  ASSERT_EQ(out.texts.size(), 3U);
  EXPECT_EQ(out.cut, 2U);
  for (const std::string& part : out.texts) {
    EXPECT_LE(part.size(), kDocumentBytesMax);
    EXPECT_EQ(part.substr(0, 7), "one of ");
  }
  expect_resumable();
}

TEST_F(Chunks, ATooLongRecordIsSkipped) {
  const std::string huge(kDocumentBytesMax + 5'000'000, 'x');
  add_file("a.jsonl", "{}\n" + huge + "\n[]\n");
  Read out = read();
  ASSERT_TRUE(out.status.ok()) << out.status;
  EXPECT_THAT(out.texts, ElementsAre("{}", "", "[]"));
  EXPECT_EQ(out.too_long, 1U);
  EXPECT_EQ(out.places[2], place(":3 (byte " + std::to_string(huge.size() + 4) + ")"));
  files_.clear();
  add_file("b.tfrecord", tfrecord("one") + tfrecord(huge) + tfrecord("two"));
  out = read();
  ASSERT_TRUE(out.status.ok()) << out.status;
  EXPECT_THAT(out.texts, ElementsAre("one", "", "two"));
  EXPECT_EQ(out.too_long, 1U);
  EXPECT_THAT(out.places[2], HasSubstr("b.tfrecord, record 3 (byte "));
}

TEST_F(Chunks, Utf16IsNamed) {
  for (const char* mark : {"\xFF\xFEh", "\xFE\xFFh"}) {
    files_.clear();
    add_file("a.txt", mark);
    const Read out = read();
    EXPECT_EQ(out.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(out.status.message()), HasSubstr("a.txt is UTF-16"));
  }
}

TEST_F(Chunks, Utf32IsNamed) {
  add_file("a.txt", std::string("\xFF\xFE\0\0h\0\0\0i\0\0\0", 12));
  EXPECT_THAT(std::string(read().status.message()), HasSubstr("a.txt is UTF-32"));
}

// In every format, and whichever byte of a unit comes first.
TEST_F(Chunks, WideTextsWithoutAMarkAreNamed) {
  const std::string text = "{\"text\": \"caf\xE9\"}\n";  // as code points
  const auto wide = [&](size_t before, size_t behind) {
    std::string bytes;
    for (const char c : text) bytes += std::string(before, '\0') + c + std::string(behind, '\0');
    return bytes;
  };
  struct Case {
    const char* name;
    size_t before;
    size_t behind;
    const char* expected;
  };
  for (const Case& one : {Case{"a.jsonl", 0, 1, "UTF-16LE"},
                          {"b.jsonl", 1, 0, "UTF-16BE"},
                          {"c.txt", 0, 1, "UTF-16LE"},
                          {"d.txt", 1, 0, "UTF-16BE"},
                          {"e.txt", 0, 3, "UTF-32LE"},
                          {"f.jsonl", 3, 0, "UTF-32BE"}}) {
    files_.clear();
    add_file(one.name, wide(one.before, one.behind));
    EXPECT_THAT(std::string(read().status.message()),
                testing::AllOf(HasSubstr(std::string(one.name) + " is " + one.expected),
                               HasSubstr(std::string("iconv -f ") + one.expected)));
  }
  // NUL bytes elsewhere are no encoding.
  for (const std::string& bytes :
       {std::string("abc\0def\0ghi\0\n", 13), std::string(40, '\0'), std::string("a\0b\n", 4),
        std::string("{\"text\":\"a\"}\n\0\0\0\0", 17),
        std::string("one\ntwo\n\0\0\0\0\0\0\0", 15)}) {
    files_.clear();
    add_file("a.txt", bytes);
    EXPECT_THAT(std::string(read().status.message()), testing::Not(HasSubstr("UTF-"))) << bytes;
  }
}

TEST_F(Chunks, PointersInCompressedFilesAreNamed) {
  const std::string lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n";
  for (const std::string& bytes :
       {gzip(lfs), zstd(lfs), gzip("\xEF\xBB\xBF" + lfs), zstd("\n" + lfs),
        gzip(lfs.substr(0, 60)) + gzip(lfs.substr(60))}) {
    files_.clear();
    add_file("a.txt", bytes);
    EXPECT_THAT(std::string(read().status.message()),
                HasSubstr("a.txt: this is a Git LFS pointer"));
  }
}

TEST_F(Chunks, TruncatedOrHostileTfRecordsAreErrorsWithTheirPosition) {
  const std::string good = tfrecord("one") + tfrecord("two");
  add_file("a.tfrecord", good);
  EXPECT_THAT(read().texts, ElementsAre("one", "two"));
  for (size_t length = 20; length < good.size(); ++length) {
    write_file(files_[0].path, good.substr(0, length));
    const Read out = read();
    EXPECT_EQ(out.status.code(), absl::StatusCode::kDataLoss) << length;
    EXPECT_THAT(std::string(out.status.message()), HasSubstr("a.tfrecord, record 2 (byte 19): "));
  }
  std::string bad = good;
  bad[20] = '\x01';
  write_file(files_[0].path, bad);
  EXPECT_THAT(std::string(read().status.message()),
              HasSubstr("the checksum of its length differs"));
  for (const uint64_t hostile : {~uint64_t{0}, ~uint64_t{0} - 15, uint64_t{1} << 62}) {
    const std::string length = little_endian(hostile, 8);
    write_file(files_[0].path,
               tfrecord("one") + length + little_endian(masked_crc32c(crc32c(length)), 4) + "abc");
    EXPECT_THAT(std::string(read().status.message()),
                HasSubstr("ends before its " + std::to_string(hostile) + " bytes do"));
  }
}

// RFC 3720's examples.
TEST(Crc32c, AgreesWithTheStandard) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising += c;
  EXPECT_EQ(crc32c(rising), 0x46DD794EU);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(TfRecord, DamagedDataIsFound) {
  const std::string record = tfrecord("some text").substr(12);
  EXPECT_EQ(*record_data(record), "some text");
  for (size_t i = 0; i < record.size(); ++i) {
    std::string bad = record;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    EXPECT_EQ(record_data(bad).status().code(), absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace muster::trainer
