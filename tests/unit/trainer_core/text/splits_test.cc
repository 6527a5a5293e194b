#include "trainer_core/text/splits.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string alone(const std::string& path) { return splits_of({path})[0]; }

TEST(Splits, AWholeNameOrAShardDeterminesItsSplit) {
  for (const char* path : {"train/00.jsonl.zst", "c4-train.00000-of-01024.json.gz",
                           "data/train-00000-of-00002.parquet", "Training.txt", "a/train/dev.txt"})
    EXPECT_EQ(alone(path), "train") << path;
  for (const char* path : {"val.jsonl.zst", "dev.txt", "valid/a.txt",
                           "c4-validation.00000-of-00008.json.gz", "en/x-dev-00000-of-00001.pq"})
    EXPECT_EQ(alone(path), "validation") << path;
  for (const char* path : {"test.jsonl", "evaluation/a.txt", "b/testing.txt"})
    EXPECT_EQ(alone(path), "test") << path;
  for (const char* path :
       {"part-1.txt", "contest.txt", "trainings.d/a", "attestation.jsonl", "devices.txt", ""})
    EXPECT_EQ(alone(path), "") << path;
}

// Dropping such a text from training would lose it.
TEST(Splits, AWordInAnOrdinaryNameIsNoSplit) {
  for (const char* path : {"linux-dev.txt", "my-eval.txt", "x_validation_1.jsonl",
                           "docs/test/a.txt", "unit.test.txt", "dev-1.txt"})
    EXPECT_EQ(alone(path), "") << path;
  EXPECT_THAT(splits_of({"linux-dev.txt", "linux-usr.txt"}), ElementsAre("", ""));
}

// Validation data that enters training makes the loss of a run meaningless.
TEST(Splits, AFirstOrLastWordDeterminesItsSplitInACorpusWithTraining) {
  struct Case {
    std::vector<std::string> paths;
    std::vector<std::string> splits;
  };
  const std::vector<Case> cases = {
      {{"train.jsonl", "validation_matched.jsonl", "test_matched.jsonl"},
       {"train", "validation", "test"}},
      {{"train-clean-100/84/a.txt", "dev-clean/84/a.txt", "test-other/84/a.txt"},
       {"train", "validation", "test"}},
      {{"train.jsonl", "val_small.jsonl", "validation1.jsonl"},
       {"train", "validation", "validation"}},
      {{"en_train.jsonl", "de_valid.jsonl", "fr_valid_00.jsonl.gz"},
       {"train", "validation", "validation"}},
      {{"train-v1.jsonl.zst", "dev-v1.jsonl"}, {"train", "validation"}},
      {{"en/train/a.txt", "en/dev/a.txt", "de/dev/a.txt"}, {"train", "validation", "validation"}},
      {{"en/dev/a.txt", "en/test/a.txt"}, {"validation", "test"}},
      {{"dev-clean/a.txt", "test-other/a.txt"}, {"validation", "test"}},
      {{"test-data/train/a.txt", "test-data/dev/a.txt", "test-data/train-v2.txt"},
       {"train", "validation", "train"}},
      {{"linux-dev.txt", "linux-usr.txt", "other-train.txt"}, {"validation", "", "train"}},
      {{"train.txt", "contest.txt", "devices.txt"}, {"train", "", ""}},
  };
  for (const Case& c : cases) EXPECT_EQ(splits_of(c.paths), c.splits) << c.paths.back();
  EXPECT_TRUE(has_held_out_word("a/my_dev_set.txt"));
  EXPECT_FALSE(has_held_out_word("train/devices.txt"));
}

TEST(Splits, AWordDeterminesItsSplitBesideTheSameNameForTraining) {
  EXPECT_THAT(splits_of({"Tales-train.txt", "Tales-valid.txt", "linux-usr.txt"}),
              ElementsAre("train", "validation", ""));
  EXPECT_THAT(splits_of({"x_train_0.jsonl", "x_train_1.jsonl", "x_test_12.jsonl"}),
              ElementsAre("train", "train", "test"));
  EXPECT_THAT(splits_of({"x_train_b.jsonl", "x_test_b.jsonl", "y_test_b.jsonl"}),
              ElementsAre("train", "test", ""));
  EXPECT_THAT(splits_of({"a/wiki.training.tokens", "a/wiki.val.tokens", "b/wiki.val.tokens"}),
              ElementsAre("train", "validation", "validation"));
}

TEST(Splits, TfdsNames) {
  const auto file = parse_tfds_name("c4-validation.tfrecord-00003-of-00008");
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->split, "validation");
  EXPECT_EQ(file->suffix, "tfrecord");
  EXPECT_EQ(file->shard, 3U);
  EXPECT_EQ(file->shards, 8U);
  EXPECT_EQ(parse_tfds_name("imdb-reviews-unsupervised.array_record-00000-of-00001")->split,
            "unsupervised");
  for (const char* name : {"dataset_info.json", "label.labels.txt", "a.tfrecord-00000-of-00001",
                           "-train.tfrecord-00000-of-00001", "c4-train.tfrecord-0-of-1",
                           "c4-train.tfrecord-00000", "c4-.tfrecord-00000-of-00001"})
    EXPECT_FALSE(parse_tfds_name(name).has_value()) << name;
}

TEST(Splits, TrainIsReadAndNothingElse) {
  const auto choice = choose_split("d", {{"train", 5}, {"validation", 2}, {"", 1}}, "");
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->split, "train");
  EXPECT_TRUE(choice->takes("train") && choice->takes(""));
  EXPECT_FALSE(choice->takes("validation"));
  EXPECT_THAT(choice->left_out, ElementsAre(Pair("validation", 2)));

  const auto held_out = choose_split("d", {{"train", 5}, {"validation", 2}, {"", 1}}, "val");
  ASSERT_TRUE(held_out.ok()) << held_out.status();
  EXPECT_TRUE(held_out->takes("validation"));
  EXPECT_FALSE(held_out->takes("train") || held_out->takes(""));

  // A file without a split in its name, beside files of other splits.
  const auto unnamed = choose_split("d", {{"", 3}, {"test", 1}}, "");
  ASSERT_TRUE(unnamed.ok()) << unnamed.status();
  EXPECT_TRUE(unnamed->takes(""));
  EXPECT_FALSE(unnamed->takes("test"));
}

TEST(Splits, ASingleSplitNeedsNoName) {
  EXPECT_EQ(choose_split("d", {{"validation", 2}}, "")->split, "validation");
  const auto none = choose_split("d", {{"", 2}}, "");
  EXPECT_TRUE(none->takes("") && none->split.empty());
  EXPECT_TRUE(choose_split("d", {{"", 2}}, "train").ok());
  EXPECT_TRUE(choose_split("d", {{"train", 1}, {"test", 1}}, "all")->takes("test"));
}

TEST(Splits, AMissingSplitNamesTheOthers) {
  EXPECT_THAT(
      std::string(choose_split("d", {{"test", 1}, {"validation", 1}}, "").status().message()),
      HasSubstr("has the splits test, validation and no train"));
  EXPECT_THAT(std::string(choose_split("d", {{"train", 1}, {"", 2}}, "test").status().message()),
              HasSubstr("no split \"test\"; it has train, and 2 files without one"));
  EXPECT_THAT(std::string(choose_split("d", {{"", 2}}, "validation").status().message()),
              HasSubstr("do not distinguish splits"));
}

}  // namespace
}  // namespace muster::trainer
