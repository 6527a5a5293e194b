#include "common/text/nearest.h"

#include <array>
#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

constexpr std::array<std::string_view, 6> kKeys = {
    "steps", "learning_rate", "per_device_batch_size", "base_emb_dim", "run_name", "model_name"};

TEST(NearestName, FindsTheIntendedName) {
  EXPECT_EQ(nearest_name("step", kKeys), "steps");
  EXPECT_EQ(nearest_name("lerning_rate", kKeys), "learning_rate");
  EXPECT_EQ(nearest_name("per_device_batchsize", kKeys), "per_device_batch_size");
  EXPECT_EQ(nearest_name("base_embed_dim", kKeys), "base_emb_dim");
  EXPECT_EQ(nearest_name("steps", kKeys), "steps");
}

TEST(NearestName, ATranspositionIsOneMistake) {
  constexpr std::array<std::string_view, 2> kCandidates = {"aabb", "abab"};
  EXPECT_EQ(nearest_name("abba", kCandidates), "abab");
  EXPECT_EQ(nearest_name("setps", kKeys), "steps");
}

TEST(NearestName, IsEmptyIfNoCandidateIsClose) {
  EXPECT_EQ(nearest_name("tokenizer", kKeys), "");
  EXPECT_EQ(nearest_name("", kKeys), "");
  EXPECT_EQ(nearest_name("steps", {}), "");
  EXPECT_EQ(nearest_name(std::string(100'000, 's'), kKeys), "");
}

TEST(NearestName, TiesGoToTheEarlierCandidate) {
  constexpr std::array<std::string_view, 2> kCandidates = {"cat", "car"};
  EXPECT_EQ(nearest_name("caz", kCandidates), "cat");
}

TEST(Nearest, CapitalsCountAsSmallLetters) {
  const std::string_view names[] = {"GPT5B", "GPT126M"};
  EXPECT_EQ(nearest_name("gpt126m", names), "GPT126M");
}

TEST(NearestNames, TheClosestFirst) {
  constexpr std::array<std::string_view, 4> kModels = {"gemma-2b", "fuji-7B-v1", "fuji-70B-v1",
                                                       "fuji-7B-v2"};
  EXPECT_EQ(closest_names("fuji-7b-v2", kModels, 3),
            (std::vector<std::string_view>{"fuji-7B-v2", "fuji-7B-v1", "fuji-70B-v1"}));
  EXPECT_EQ(closest_names("x", kModels, 9).size(), 4);
}

}  // namespace
}  // namespace muster
