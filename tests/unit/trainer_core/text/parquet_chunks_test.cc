// Files of tests/golden/make_parquet.py. A build without Arrow C++ has parquet_missing_test.cc
// instead.
#include "trainer_core/text/parquet_chunks.h"

#include <gmock/gmock.h>

#include <optional>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/unit/trainer_core/text/tokenize_fixture.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

constexpr size_t kRows = 60;
using Texts = std::vector<std::optional<std::string>>;

// The rows that make_parquet.py wrote.
Texts expected_texts() {
  Texts texts;
  for (size_t row = 0; row < kRows; ++row) {
    std::string text = absl::StrCat("row ", row, ": ");
    for (size_t i = 0; i < row % 7; ++i) text += "the ranks meet ";
    texts.emplace_back(text + (row % 2 == 0 ? "" : "é"));
    if (row % 11 == 3) texts.back().reset();
  }
  return texts;
}

std::string golden(const std::string& name) {
  return absl::StrCat(source_dir(), "/tests/golden/parquet/", name, ".parquet");
}

struct Read {
  Texts texts;
  std::vector<Position> ends;  // ends of chunks
  absl::Status status;
};

Read read(const std::string& path, const std::string& field = "text", uint64_t row = 0) {
  Read out;
  const InputFile file{path, InputFormat::kParquet, read_file(path).size(), 0};
  const auto chunks = open_parquet_chunks(file, field, {0, 0, row});
  out.status = chunks.status();
  while (out.status.ok()) {
    Chunk chunk;
    const auto more = (*chunks)->next(chunk);
    out.status = more.status();
    if (!more.ok() || !*more) break;
    for (const Record& record : chunk.records) {
      EXPECT_EQ(record.number, row + out.texts.size());
      out.texts.emplace_back(chunk.text(record));
      if (record.flaw == Flaw::kNull) out.texts.back().reset();
    }
    EXPECT_LE(chunk.file_position, file.bytes);
    out.ends.push_back(chunk.end);
  }
  return out;
}

TEST(ParquetChunks, TheColumnIsReadInAnyEncoding) {
  for (const std::string name :
       {"plain", "checksums", "snappy", "gzip", "zstd", "pages", "delta"}) {
    const Read got = read(golden(name));
    EXPECT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.texts, expected_texts()) << name;
  }
  EXPECT_EQ(read(golden("nested"), "doc.text").texts, expected_texts());
  const Read none = read(golden("empty"));
  EXPECT_TRUE(none.status.ok() && none.texts.empty()) << none.status;
}

TEST(ParquetChunks, AnyRowMayBeTheFirst) {
  const Texts all = expected_texts();
  for (const std::string name : {"plain", "snappy", "pages", "zstd"}) {
    for (size_t row = 0; row <= kRows; ++row) {
      const Read got = read(golden(name), "text", row);
      EXPECT_TRUE(got.status.ok()) << got.status;
      EXPECT_EQ(got.texts, Texts(all.begin() + static_cast<ptrdiff_t>(row), all.end()));
    }
  }
}

TEST(ParquetChunks, AColumnWithoutTextIsNamed) {
  const auto message = [](const std::string& field) {
    const absl::Status status = read(golden("nested"), field).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message("text"), HasSubstr("has no column \"text\"; it has \"id\", \"doc.text\", "));
  EXPECT_THAT(message("id"), HasSubstr("column \"id\" holds no text"));
  EXPECT_THAT(message("parts.list.element"), HasSubstr("holds no text"));
}

TEST(ParquetChunks, WrongSizesAreErrorsBeforeAllocation) {
  const std::string message(read(golden("huge_uncompressed")).status.message());
  EXPECT_THAT(message, HasSubstr("huge_uncompressed.parquet is damaged near row 1 (row group 0, "
                                 "whose column has its pages from byte 4)"));
  EXPECT_THAT(message, HasSubstr("of memory"));
  for (const std::string name : {"huge_compressed", "huge_footer"}) {
    const absl::Status status = read(golden(name)).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
}

TEST(ParquetChunks, ADamagedPageIsFoundByItsChecksum) {
  std::string bytes = read_file(golden("checksums"));
  const size_t at = bytes.find("row 20: ");  // in the second row group
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'R';
  const TempFolder folder;
  write_file(folder.file("bad.parquet"), bytes);
  const Read got = read(folder.file("bad.parquet"));
  EXPECT_EQ(got.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(got.status.message()), HasSubstr("damaged near row 14 (row group 1"));
}

// The footer is at the end.
TEST(ParquetChunks, EveryTruncationIsDetected) {
  const TempFolder folder;
  const std::string bytes = read_file(golden("snappy"));
  for (size_t size = 0; size < bytes.size(); size += 13) {
    write_file(folder.file("cut.parquet"), bytes.substr(0, size));
    const absl::Status status = read(folder.file("cut.parquet")).status;
    ASSERT_FALSE(status.ok()) << size;
    ASSERT_THAT(std::string(status.message()), HasSubstr("cut.parquet"));
  }
}

class ParquetTokenize : public TokenizeFixture {};

// Chunks of long.parquet end in the middle of its two row groups, and so do shards. A full disk
// leaves the same files as a kill.
TEST_F(ParquetTokenize, ARunResumesInTheMiddleOfARowGroup) {
  const Read rows = read(golden("long"));
  ASSERT_TRUE(rows.status.ok()) << rows.status;
  ASSERT_EQ(rows.texts.size(), 40'000U);
  TokenizeOptions run = options("undisturbed");
  run.inputs = {golden("long")};
  run.shard_tokens = 1;  // one shard per chunk
  const auto undisturbed = tokenize_files(run);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.status();
  EXPECT_EQ(undisturbed->index.documents, 40'000U);
  const size_t shards = undisturbed->index.shards.size();
  ASSERT_EQ(shards, rows.ends.size());
  ASSERT_GT(shards, 8U);

  run.output_directory = folder_->file("disturbed");
  std::filesystem::create_directories(run.output_directory);
  for (size_t next = 1; next < shards; ++next) {
    ASSERT_NE(rows.ends[next - 1].record % 20'000, 0U) << "a row group's end is no test";
    const std::string blocked = run.output_directory + "/" + shard_file_name(next) + ".tmp";
    std::filesystem::create_symlink("/dev/full", blocked);
    const auto status = tokenize_files(run).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    std::filesystem::remove(blocked);
  }
  const auto resumed = tokenize_files(run);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->reused_shards, shards - 1);
  for (size_t i = 0; i < shards; ++i) {
    const std::string name = absl::StrCat("/", shard_file_name(i));
    EXPECT_TRUE(read_file(run.output_directory + name) ==
                read_file(folder_->file("undisturbed") + name))
        << name;
  }
}

TEST_F(ParquetTokenize, NullsAreBadDocuments) {
  TokenizeOptions run = options("nulls");
  run.inputs = {golden("snappy")};
  const auto stopped = tokenize_files(run).status();
  EXPECT_THAT(std::string(stopped.message()),
              HasSubstr("snappy.parquet, row 4 field \"text\" is null"));
  run.encode.bad_documents = BadDocuments::kSkip;
  const auto report = tokenize_files(run);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->counts.skipped, 6U);
  EXPECT_EQ(report->index.documents, kRows - 6);
}

}  // namespace
}  // namespace muster::trainer
