#include "trainer_core/base/data_paths.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(std::string_view text) {
  const auto shares = parse_data_paths(text);
  EXPECT_FALSE(shares.ok()) << text;
  return std::string(shares.status().message());
}

TEST(DataPaths, OneFolderOrSeveralWithWeights) {
  EXPECT_THAT(*parse_data_paths("/a/b"), ElementsAre(DataShare{"/a/b", 1}));
  EXPECT_THAT(*parse_data_paths(""), ElementsAre(DataShare{"", 1}));
  EXPECT_THAT(*parse_data_paths("/a,b"), ElementsAre(DataShare{"/a,b", 1}));
  EXPECT_THAT(*parse_data_paths("/a,0.7;/b,3"),
              ElementsAre(DataShare{"/a", 0.7}, DataShare{"/b", 3}));
  EXPECT_THAT(*parse_data_paths("/a,1e2;/b,0.5;"),
              ElementsAre(DataShare{"/a", 100}, DataShare{"/b", 0.5}));
  for (const char* text : {"/a/b", "/a,0.69999999999999996;/b,3", "/a,1;/b,2;/c,3"}) {
    const auto shares = parse_data_paths(text);
    ASSERT_TRUE(shares.ok());
    EXPECT_EQ(data_paths_text(*shares), text);
  }
}

TEST(DataPaths, ErrorsNameTheInvalidPart) {
  EXPECT_THAT(error_of("/a;/b,1"), HasSubstr("\"/a\" has no weight"));
  EXPECT_THAT(error_of("/a,1;;/b,1"), HasSubstr("has no weight"));
  for (const char* weight : {"0", "-1", "nan", "inf", "much", ""})
    EXPECT_THAT(error_of("/a,1;/b," + std::string(weight)),
                HasSubstr("the weight of /b is \"" + std::string(weight) + "\""));
  EXPECT_THAT(error_of("/a,0"), HasSubstr("above 0"));
  EXPECT_THAT(error_of("/a,1e308;/b,1e308"), HasSubstr("sum is not finite"));
  EXPECT_THAT(error_of("/a,1;/b,1e-7"),
              HasSubstr("/b is 1e-07 of a sum of 1, but must be at least a millionth"));
  std::string many;
  for (size_t i = 0; i <= kBlendSourcesMax; ++i) many += "/a,1;";
  EXPECT_THAT(error_of(many), HasSubstr("more than 64"));
}

}  // namespace
}  // namespace muster::trainer
