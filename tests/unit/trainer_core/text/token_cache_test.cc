#include "trainer_core/text/token_cache.h"

#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/unit/trainer_core/text/tokenize_fixture.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

class TokenCache : public TokenizeFixture {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(data_.file("corpus"));
    write_file(data_.file("corpus/a-train.txt"), corpus(60));
    write_file(data_.file("corpus/a-validation.txt"), corpus(7));
  }

  TokenCacheOptions cache(const std::string& split) {
    TokenCacheOptions of;
    of.tokenize = options("unused");
    of.tokenize.inputs = {data_.file("corpus")};
    of.tokenize.split = split;
    of.roots = {data_.file("corpus/.muster-tokens"), data_.file("second")};
    return of;
  }

  const TempFolder data_;
};

TEST_F(TokenCache, TokensAreMadeOnceAndFoundAgain) {
  auto of = cache("train");
  of.only_find = true;
  EXPECT_EQ(cached_tokens(of).status().code(), absl::StatusCode::kNotFound);
  of.only_find = false;
  const auto first = cached_tokens(of);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->is_new);
  EXPECT_EQ(first->report.left_out.at("validation"), 1U);
  EXPECT_THAT(first->folder, HasSubstr("/corpus/.muster-tokens/train-"));
  const auto again = cached_tokens(of);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->is_new);
  EXPECT_EQ(again->folder, first->folder);
  // The tokens themselves are a corpus, too.
  of.tokenize.inputs = {first->folder};
  EXPECT_EQ(cached_tokens(of)->folder, first->folder);
}

TEST_F(TokenCache, WhateverChangesTheTokensHasItsOwnFolder) {
  auto of = cache("train");
  const auto first = cached_tokens(of);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto held_out = cached_tokens(cache("validation"));
  ASSERT_TRUE(held_out.ok()) << held_out.status();
  EXPECT_NE(held_out->folder, first->folder);
  EXPECT_LT(held_out->report.index.tokens, first->report.index.tokens);
  of.tokenize.encode.add_eos = false;
  EXPECT_NE(cached_tokens(of)->folder, first->folder);
  std::ofstream(data_.file("corpus/a-train.txt"), std::ios::app) << "and one more line\n";
  const auto changed = cached_tokens(cache("train"));
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_TRUE(changed->is_new);
  EXPECT_EQ(changed->report.index.documents, first->report.index.documents + 1);
}

TEST_F(TokenCache, AnUnwritableFolderIsPassedOver) {
  write_file(data_.file("no-folder"), "x");
  auto of = cache("train");
  of.roots[0] = data_.file("no-folder/tokens");
  const auto tokens = cached_tokens(of);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_THAT(tokens->folder, HasSubstr("/second/train-"));
  EXPECT_FALSE(cached_tokens(cache("train"))->is_new) << "another folder has them";
  of = cache("validation");
  of.roots = {data_.file("no-folder/tokens")};
  EXPECT_THAT(std::string(cached_tokens(of).status().message()), HasSubstr("MUSTER_TOKEN_CACHE"));
}

TEST_F(TokenCache, OfCallersThatStartTogetherOneTokenizes) {
  std::atomic<int> made = 0, failed = 0;
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 6; ++i) {
      callers.emplace_back([&] {
        const auto tokens = cached_tokens(cache("train"));
        if (!tokens.ok()) ++failed;
        if (tokens.ok() && tokens->is_new) ++made;
      });
    }
  }
  EXPECT_EQ(made, 1);
  EXPECT_EQ(failed, 0);
}

TEST_F(TokenCache, AnInterruptedCallResumesInTheSameFolder) {
  auto of = cache("train");
  of.tokenize.shard_tokens = 200;
  write_file(data_.file("corpus/a-train.txt"), corpus(20'000));
  std::atomic<bool> stop = false;
  of.tokenize.stop = &stop;
  const auto stopped = cached_tokens(of, [&](const TokenizeProgress&) { stop = true; });
  ASSERT_EQ(stopped.status().code(), absl::StatusCode::kCancelled) << stopped.status();
  stop = false;
  const auto resumed = cached_tokens(of);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_GT(resumed->report.reused_shards, 0U);
}

TEST_F(TokenCache, PatternsNameFiles) {
  EXPECT_EQ(expand_pattern(data_.file("corpus/*-t*.txt"))->size(), 1U);
  EXPECT_EQ(expand_pattern(data_.file("corpus/*.txt"))->size(), 2U);
  EXPECT_EQ(expand_pattern("/no/such/file")->front(), "/no/such/file");
  EXPECT_EQ(expand_pattern(data_.file("*.parquet")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(TokenCache, TfdsNamesFindTheirFolder) {
  for (const char* folder : {"c4/en/3.0.1", "c4/en/3.0.9", "c4/en/3.0.10", "the_pile/1.0.0",
                             "lambada/1.0.0.incompleteX"}) {
    std::filesystem::create_directories(data_.file(std::string("tfds/") + folder));
    write_file(data_.file(std::string("tfds/") + folder + "/dataset_info.json"), "{}");
  }
  const std::string root = data_.file("tfds");
  EXPECT_EQ(*find_tfds_folder(root, "c4/en:3.0.1", true), root + "/c4/en/3.0.1");
  EXPECT_EQ(*find_tfds_folder(root, "c4/en", true), root + "/c4/en/3.0.10");
  EXPECT_EQ(*find_tfds_folder(root, "the_pile", false), root + "/the_pile/1.0.0");
  EXPECT_EQ(*find_tfds_folder(root + "/c4", "c4/en:3.0.9", true), root + "/c4/en/3.0.9");
  EXPECT_EQ(*find_tfds_folder(root + "/the_pile", "c4/en:3.0.1", false), root + "/the_pile/1.0.0");
  EXPECT_EQ(*find_tfds_folder(root + "/c4/en/3.0.9", "c4/en:3.0.1", true), root + "/c4/en/3.0.9");
  EXPECT_THAT(std::string(find_tfds_folder(root, "lambada", true).status().message()),
              HasSubstr("no data set lambada in " + root +
                        ": it has c4/en/3.0.1, c4/en/3.0.9, c4/en/3.0.10, the_pile/1.0.0"));
  EXPECT_EQ(*find_tfds_folder(data_.file("corpus"), "c4/en:3.0.1", false), data_.file("corpus"));
  EXPECT_FALSE(find_tfds_folder(data_.file("corpus"), "c4/en:3.0.1", true).ok());
}

// The download scripts put JSON lines beside each other, without dataset_info.json.
TEST_F(TokenCache, SeveralPlainDataSetsAreNotOneCorpus) {
  const std::string root = data_.file("tfds");
  for (const char* name : {"lambada", "bool_q"})
    std::filesystem::create_directories(root + "/" + name);
  const auto error = [&](const std::string& name, bool is_stated) {
    return std::string(find_tfds_folder(root, name, is_stated).status().message());
  };
  EXPECT_EQ(error("the_pile", false), root +
                                          " has several data sets: bool_q, lambada; "
                                          "dataset_name=NAME selects one, or give its folder: " +
                                          root + "/bool_q; dataset_type=hf trains on all of them");
  EXPECT_THAT(error("c4/en:3.0.1", true),
              HasSubstr("no data set c4/en:3.0.1 in " + root + ": it has bool_q, lambada"));
  EXPECT_EQ(*find_tfds_folder(root, "lambada", true), root + "/lambada");
  EXPECT_EQ(*find_tfds_folder(root + "/lambada", "the_pile", false), root + "/lambada");
  std::filesystem::create_directories(root + "/the_pile/train");
  EXPECT_EQ(*find_tfds_folder(root, "the_pile", false), root + "/the_pile");
  // One of them by TFDS does not make the others vanish.
  std::filesystem::create_directories(root + "/c4/en/3.0.1");
  std::ofstream(root + "/c4/en/3.0.1/dataset_info.json") << "{}";
  EXPECT_EQ(*find_tfds_folder(root, "the_pile", false), root + "/the_pile");
  EXPECT_THAT(error("wikipedia", false), HasSubstr("several data sets: bool_q, c4, lambada"));
  std::filesystem::create_directories(root + "/downloads/extracted");
  EXPECT_THAT(error("wikipedia", false), HasSubstr("several data sets: bool_q, c4, lambada"));
  // An empty name that the user states names no data set, not the root.
  EXPECT_FALSE(find_tfds_folder(root, "", true).ok());
  // Folders of one corpus.
  const std::string corpus = data_.file("books");
  for (const char* name : {"train", "fiction"})
    std::filesystem::create_directories(corpus + "/" + name);
  EXPECT_EQ(*find_tfds_folder(corpus, "the_pile", false), corpus);
  // RedPajama: the parts of one mixture, some of which have names of data sets.
  const std::string mixture = data_.file("redpajama");
  for (const char* name : {"arxiv", "book", "c4", "github", "wikipedia"})
    std::filesystem::create_directories(mixture + "/" + name);
  const auto found = find_tfds_folder(mixture, "the_pile", false);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, mixture);
}

}  // namespace
}  // namespace muster::trainer
