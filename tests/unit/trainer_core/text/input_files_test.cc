#include "trainer_core/text/input_files.h"

#include <gmock/gmock.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(InputFiles, NamesDetermineTheFormat) {
  EXPECT_EQ(format_of("a/b.txt"), InputFormat::kText);
  EXPECT_EQ(format_of("b.TXT.GZ"), InputFormat::kText);
  EXPECT_EQ(format_of("pile/00.jsonl.zst"), InputFormat::kJsonLines);
  EXPECT_EQ(format_of("c4-train.00000-of-01024.json.gz"), InputFormat::kJsonLines);
  EXPECT_EQ(format_of("c4-train.tfrecord-00000-of-01024"), InputFormat::kTfRecord);
  EXPECT_EQ(format_of("x.tfrecord"), InputFormat::kTfRecord);
  EXPECT_EQ(format_of("train-00000-of-00001.parquet"), InputFormat::kParquet);
  EXPECT_EQ(format_of("README.md"), std::nullopt);
  EXPECT_EQ(format_of("a.txt/data"), std::nullopt);
}

TEST(InputFiles, AFolderIsReadInNaturalOrder) {
  TempFolder folder;
  std::filesystem::create_directories(folder.file("part-3"));
  std::filesystem::create_directories(folder.file(".cache"));
  for (const char* name : {"part-10.jsonl", "part-2.jsonl", "part-3/a.txt", "README.md",
                           ".cache/b.txt", ".hidden.txt"}) {
    write_file(folder.file(name), "0123456789");
  }
  write_file(folder.file("notes"), "x");
  const std::vector<std::string> paths = {folder.path(), folder.file("notes")};
  const auto found = find_input_files(paths, std::nullopt);
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<std::string> names;
  for (const InputFile& file : found->files) names.push_back(file.path);
  EXPECT_THAT(names, ElementsAre(folder.file("part-2.jsonl"), folder.file("part-3/a.txt"),
                                 folder.file("part-10.jsonl"), folder.file("notes")));
  EXPECT_EQ(found->files[0].format, InputFormat::kJsonLines);
  EXPECT_EQ(found->files[3].format, InputFormat::kText) << "a file that is named itself";
  EXPECT_EQ(total_bytes(found->files), 31U);
  EXPECT_THAT(found->ignored, ElementsAre(folder.file("README.md"), folder.file("notes")));

  const auto forced = find_input_files(paths, InputFormat::kTfRecord);
  ASSERT_TRUE(forced.ok());
  EXPECT_EQ(forced->files.size(), 6U);
  EXPECT_EQ(forced->files[0].format, InputFormat::kTfRecord);
}

TEST(InputFiles, AFolderWithoutTextIsAnError) {
  TempFolder folder;
  write_file(folder.file("README.md"), "x");
  const auto status = find_input_files({{folder.path()}}, std::nullopt).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(folder.path() + " has no text in it: none of its 1 files"));
  write_file(folder.file("a.txt"), "x");
  write_file(folder.file("notes.zip"), "x");
  EXPECT_TRUE(find_input_files({{folder.path()}}, std::nullopt).ok());
  write_file(folder.file("b.jsonl.BZ2"), "x");
  EXPECT_EQ(find_input_files({{folder.path()}}, std::nullopt).status().message(),
            folder.file("b.jsonl.BZ2") +
                " is compressed: bzip2 is not read; recompress it with zstd or gzip");
  EXPECT_EQ(find_input_files({{folder.file("none")}}, std::nullopt).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster::trainer
