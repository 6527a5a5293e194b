#include "trainer_core/convert/tokenizer_files.h"

#include <gmock/gmock.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "trainer_core/text/train_tokenizer.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

class TokenizerFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 200; ++i)
      text += "In the beginning was the word, number " + std::to_string(i) + "\n";
    write_file(folder_.file("text.txt"), text);
    TrainTokenizerOptions options;
    options.input = folder_.file("text.txt");
    options.vocab_size = 300;
    options.output = model();
    options.threads = 1;
    const auto report = train_tokenizer(options);
    ASSERT_TRUE(report.ok()) << report.status();
    source_.folder = folder_.path();
    source_.model.vocab_size = 300;
    source_.max_position = 64;
  }
  std::string model() const { return folder_.file("given.model"); }

  TempFolder folder_;
  ParameterDescription source_;
};

// In shards documents begin after an end-of-sequence token; Meta's begin with a token of their own.
TEST_F(TokenizerFilesTest, DescribesASentencePieceModel) {
  for (const bool ours : {true, false}) {
    source_.format = ours ? ParameterFormat::kMuster : ParameterFormat::kMeta;
    source_.config.emplace().dataset_type = DatasetType::kShards;
    const auto files = find_tokenizer_files(source_, model());
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_EQ(files->tokenizer_config["tokenizer_class"], "LlamaTokenizer");
    EXPECT_EQ(files->tokenizer_config["bos_token"], ours ? "</s>" : "<s>");
    EXPECT_EQ(files->tokenizer_config["add_bos_token"], !ours);
    EXPECT_EQ(files->tokenizer_config["eos_token"], "</s>");
    EXPECT_EQ(files->tokenizer_config["model_max_length"], 64);
    EXPECT_EQ(files->token_ids["bos_token_id"], ours ? 2 : 1);
    EXPECT_EQ(files->token_ids["eos_token_id"], 2);
    const TempFolder out;
    ASSERT_TRUE(write_tokenizer_files(*files, out.path()).ok());
    EXPECT_EQ(read_file(out.file("tokenizer.model")), read_file(model()));
    EXPECT_EQ(nlohmann::json::parse(read_file(out.file("generation_config.json")))["eos_token_id"],
              2);
  }
}

// Samples of muster tokenize --sft --bos.
TEST_F(TokenizerFilesTest, DescribesTheTokenWithWhichSamplesBegin) {
  source_.format = ParameterFormat::kMuster;
  TrainConfig& config = source_.config.emplace();
  config.dataset_type = DatasetType::kShards;
  config.sample_begin_id = 1;
  const auto files = find_tokenizer_files(source_, model());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->tokenizer_config["bos_token"], "<s>");
  EXPECT_EQ(files->tokenizer_config["add_bos_token"], true);
  EXPECT_EQ(files->token_ids["bos_token_id"], 1);
}

TEST_F(TokenizerFilesTest, CopiesTransformersFiles) {
  source_.format = ParameterFormat::kHuggingFace;
  source_.token_ids = {{"bos_token_id", 1}, {"eos_token_id", 7}};
  write_file(folder_.file("tokenizer.json"), "{}");
  write_file(folder_.file("tokenizer_config.json"), R"({"x": 1})");
  write_file(folder_.file("generation_config.json"), R"({"eos_token_id": [8, 9], "top_p": 0.9})");
  const auto files = find_tokenizer_files(source_, "");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->token_ids, (nlohmann::json{{"bos_token_id", 1}, {"eos_token_id", {8, 9}}}));
  const TempFolder out;
  ASSERT_TRUE(write_tokenizer_files(*files, out.path()).ok());
  EXPECT_EQ(read_file(out.file("tokenizer_config.json")), R"({"x": 1})");
  EXPECT_EQ(read_file(out.file("generation_config.json")),
            R"({"eos_token_id": [8, 9], "top_p": 0.9})");
  EXPECT_EQ(read_file(out.file("text.txt")), "");
}

TEST_F(TokenizerFilesTest, TakesAFolderOfATokenizer) {
  const std::string folder = folder_.file("tokenizer");
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(model(), folder + "/spiece.model");
  source_.format = ParameterFormat::kMeta;
  const auto given = find_tokenizer_files(source_, folder);
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->sentence_piece, folder + "/spiece.model");
  // The one of a run.
  TrainConfig config;
  config.tokenizer_path = folder;
  source_.format = ParameterFormat::kMuster;
  source_.config = config;
  source_.folder = folder_.file("run/checkpoints/1");
  const auto of_run = find_tokenizer_files(source_, "");
  ASSERT_TRUE(of_run.ok()) << of_run.status();
  EXPECT_EQ(of_run->sentence_piece, folder + "/spiece.model");
  EXPECT_TRUE(of_run->notes.empty());
  // A folder without one is an error, or a note for a run.
  source_.config->tokenizer_path = folder_.file("empty");
  std::filesystem::create_directory(folder_.file("empty"));
  EXPECT_FALSE(find_tokenizer_files(source_, folder_.file("empty")).ok());
  const auto without = find_tokenizer_files(source_, "");
  ASSERT_TRUE(without.ok()) << without.status();
  ASSERT_EQ(without->notes.size(), 1U);
  EXPECT_THAT(without->notes[0], HasSubstr("no tokenizer goes along: give one with --tokenizer"));
}

TEST_F(TokenizerFilesTest, RefusesAnotherModelsTokenizer) {
  source_.model.vocab_size = 299;
  EXPECT_THAT(std::string(find_tokenizer_files(source_, model()).status().message()),
              HasSubstr("has a vocabulary of 300, and the model one of 299"));
  EXPECT_THAT(
      std::string(find_tokenizer_files(source_, folder_.file("text.txt")).status().message()),
      HasSubstr("is not a SentencePiece model"));
  // Llama 3's file of that name is of another kind: it is copied, with a note.
  source_.format = ParameterFormat::kMeta;
  write_file(folder_.file("tokenizer.model"), "IQ== 0\nIg== 1\n");
  const auto files = find_tokenizer_files(source_, "");
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->notes.size(), 1U);
  EXPECT_THAT(files->notes[0], HasSubstr("is not a SentencePiece model; it is copied as it is"));
}

TEST_F(TokenizerFilesTest, RefusesPointersAndDanglingLinks) {
  source_.format = ParameterFormat::kHuggingFace;
  const auto error = [this] {
    return std::string(find_tokenizer_files(source_, "").status().message());
  };
  for (const char* name : {"tokenizer.model", "tokenizer.json", "tokenizer_config.json",
                           "vocab.json", "generation_config.json"}) {
    write_file(folder_.file(name),
               "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n");
    EXPECT_THAT(error(), HasSubstr(folder_.file(name) + ": this is a Git LFS pointer"));
    std::filesystem::remove(folder_.file(name));
    std::filesystem::create_symlink("../../blobs/12", folder_.file(name));
    EXPECT_THAT(error(), HasSubstr(folder_.file(name) + ": it is a symbolic link to ../../blobs"));
    std::filesystem::remove(folder_.file(name));
  }
  EXPECT_EQ(error(), "");
}

}  // namespace
}  // namespace muster::trainer
