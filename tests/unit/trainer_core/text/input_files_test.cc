#include "trainer_core/text/input_files.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "trainer_core/text/splits.h"

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
  std::vector<std::string> ignored;
  for (const IgnoredEntry& entry : found->ignored) ignored.push_back(entry.path);
  EXPECT_THAT(ignored, ElementsAre(folder.file(".cache"), folder.file(".hidden.txt"),
                                   folder.file("README.md"), folder.file("notes")));

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

TEST(InputFiles, ATfdsFolderIsItsTrainingData) {
  TempFolder folder;
  const std::string set = folder.file("c4/en/3.0.1");
  std::filesystem::create_directories(set);
  for (const char* name : {"dataset_info.json", "features.json", "label.labels.txt",
                           "c4-train.tfrecord-00000-of-00003", "c4-train.tfrecord-00001-of-00003",
                           "c4-validation.tfrecord-00000-of-00001"})
    write_file(set + "/" + name, "x");
  write_file(folder.file("c4/notes.txt"), "x");
  const auto found = find_input_files({{folder.file("c4")}}, std::nullopt);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->files.size(), 2U);
  EXPECT_EQ(found->files[1].path, set + "/c4-train.tfrecord-00001-of-00003");
  EXPECT_EQ(found->split, "train");
  EXPECT_EQ(found->left_out.at("validation"), 1U);
  std::map<std::string, std::string> ignored;
  for (const IgnoredEntry& entry : found->ignored) ignored[entry.path] = entry.reason;
  EXPECT_EQ(ignored, (std::map<std::string, std::string>{
                         {folder.file("c4/notes.txt"), "outside the data set of TFDS"},
                         {set + "/dataset_info.json", "metadata of TFDS"},
                         {set + "/features.json", "metadata of TFDS"},
                         {set + "/label.labels.txt", "metadata of TFDS"}}));
  EXPECT_THAT(found->notes, ElementsAre(HasSubstr("c4-train has 2 of its 3 shards")));

  const auto held_out = find_input_files({{folder.file("c4")}}, std::nullopt, "validation");
  ASSERT_TRUE(held_out.ok()) << held_out.status();
  EXPECT_EQ(held_out->files.size(), 1U);
  EXPECT_TRUE(held_out->notes.empty());

  // Two data sets are not one corpus: one of them may be meant for evaluation.
  std::filesystem::create_directories(folder.file("c4/en.noclean/3.0.1"));
  write_file(folder.file("c4/en.noclean/3.0.1/features.json"), "x");
  EXPECT_THAT(std::string(find_input_files({{folder.file("c4")}}, std::nullopt).status().message()),
              HasSubstr("2 data sets of TFDS: en.noclean/3.0.1, en/3.0.1; name the folder of one"));
  EXPECT_TRUE(find_input_files({{set}}, std::nullopt).ok());
  write_file(set + "/c4-train.array_record-00002-of-00003", "x");
  EXPECT_THAT(std::string(find_input_files({{set}}, std::nullopt).status().message()),
              HasSubstr("file_format=tfrecord"));
}

TEST(InputFiles, ValidationIsNeverMixedIntoTraining) {
  TempFolder folder;
  for (const char* name : {"c4-train.00000-of-00002.json", "c4-train.00001-of-00002.json",
                           "c4-validation.00000-of-00001.json"})
    write_file(folder.file(name), "x");
  const auto train = find_input_files({{folder.path()}}, std::nullopt);
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ(train->files.size(), 2U);
  EXPECT_EQ(train->left_out.at("validation"), 1U);
  EXPECT_EQ(find_input_files({{folder.path()}}, std::nullopt, "all")->files.size(), 3U);
  // A file that is named itself is read whatever it is called.
  const std::vector<std::string> named = {folder.file("c4-validation.00000-of-00001.json")};
  EXPECT_EQ(find_input_files(named, std::nullopt)->files.size(), 1U);
}

// The shell or a key such as grain_train_files expands a pattern to the files of all splits.
TEST(InputFiles, FilesOfAPatternAreThoseOfOneSplit) {
  const TempFolder folder;
  std::vector<std::string> all;
  for (const char* name : {"c4-train.tfrecord-00000-of-00002", "c4-train.tfrecord-00001-of-00002",
                           "c4-validation.tfrecord-00000-of-00001", "dataset_info.json"}) {
    write_file(folder.file(name), "x");
    all.push_back(folder.file(name));
  }
  const auto train = find_input_files(all, std::nullopt);
  ASSERT_TRUE(train.ok()) << train.status();
  ASSERT_EQ(train->files.size(), 2U);
  EXPECT_EQ(train->files[1].path, all[1]);
  EXPECT_EQ(train->split, "train");
  EXPECT_EQ(train->left_out, (std::map<std::string, size_t>{{"validation", 1}}));
  ASSERT_EQ(train->ignored.size(), 1U);
  EXPECT_EQ(train->ignored[0].reason, "metadata of TFDS");
  const auto validation = find_input_files(all, std::nullopt, "validation");
  ASSERT_TRUE(validation.ok()) << validation.status();
  ASSERT_EQ(validation->files.size(), 1U);
  EXPECT_EQ(validation->files[0].path, all[2]);
  EXPECT_EQ(find_input_files(all, std::nullopt, kEverySplit)->files.size(), 3U);
  const std::string one[] = {all[2]};
  EXPECT_EQ(find_input_files(one, std::nullopt)->files.size(), 1U) << "a file named outright";
  EXPECT_FALSE(find_input_files(all, std::nullopt, "test").ok());
}

TEST(InputFiles, NamesWithASplitsWordAreLeftOutBesideTrainingOrNoted) {
  TempFolder folder;
  for (const char* name : {"linux-dev.txt", "linux-usr.txt", "my-test-set.txt"})
    write_file(folder.file(name), "x");
  const auto unnamed = find_input_files({{folder.path()}}, std::nullopt);
  ASSERT_TRUE(unnamed.ok()) << unnamed.status();
  EXPECT_EQ(unnamed->files.size(), 3U);
  ASSERT_EQ(unnamed->notes.size(), 1U);
  EXPECT_EQ(unnamed->notes[0].find("linux-dev.txt, my-test-set.txt count as train (2 files)"), 0U)
      << unnamed->notes[0];
  const auto all = find_input_files({{folder.path()}}, std::nullopt, "all");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_TRUE(all->notes.empty());

  write_file(folder.file("Tales-train.txt"), "x");
  write_file(folder.file("validation_small.txt"), "x");
  const auto train = find_input_files({{folder.path()}}, std::nullopt);
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_EQ(train->files.size(), 3U);
  EXPECT_EQ(train->left_out, (std::map<std::string, size_t>{{"validation", 2}}));
  ASSERT_EQ(train->notes.size(), 1U);
  EXPECT_EQ(train->notes[0].find("my-test-set.txt counts as train (1 file)"), 0U)
      << train->notes[0];
}

}  // namespace
}  // namespace muster::trainer
