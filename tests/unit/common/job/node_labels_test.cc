#include "common/job/node_labels.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster {
namespace {

const NodeLabels kNode{.labels = {{"gpu", "h100"}, {"example.com/zone", "a"}, {"empty", ""}},
                       .taints = {"dedicated=evals"}};

TEST(NodeLabels, AllConditionsMustHold) {
  const std::vector<std::string> tolerates = {"dedicated=evals"};
  EXPECT_TRUE(suits(kNode, {"gpu=h100", "example.com/zone!=b", "empty="}, tolerates));
  EXPECT_EQ(why_unsuitable(kNode, {"gpu=h100", "example.com/zone!=a"}, tolerates),
            "it does not have example.com/zone!=a");
  EXPECT_FALSE(suits(kNode, {"gpu=h100", "example.com/zone!=a"}, tolerates));
  EXPECT_EQ(why_unsuitable(kNode, {"disk=fast"}, tolerates), "it does not have disk=fast");
  EXPECT_TRUE(suits(kNode, {"disk!=fast"}, tolerates)) << "a node without the label";
}

TEST(NodeLabels, EachTaintMustBeTolerated) {
  EXPECT_EQ(why_unsuitable(kNode, {}, {"dedicated=training"}),
            "its taint dedicated=evals is not tolerated");
  EXPECT_FALSE(suits(kNode, {}, {}));
  EXPECT_TRUE(suits({.labels = kNode.labels}, {}, {"dedicated=evals"}));
}

TEST(NodeLabels, ErrorsNameTheValueAndWhatWouldBeRight) {
  EXPECT_TRUE(check_label("--label", "gpu=h100").ok());
  EXPECT_TRUE(check_condition("--select", "gpu!=h100").ok());
  EXPECT_EQ(check_label("--label", "gpu").message(),
            "--label is \"gpu\": it must be NAME=VALUE, each of at most 63 of the characters A-Z "
            "a-z 0-9 . _ - (in the name also /)");
  for (const char* bad : {"", "=", "=a", "a b=c", "a=b c", "a=b=c", "!=a", "a!=b\n"})
    EXPECT_FALSE(check_condition("--select", bad).ok()) << bad;
  EXPECT_THAT(std::string(check_label("--label", "gpu!=h100").message()),
              testing::HasSubstr("it must be NAME=VALUE, each"));
  EXPECT_FALSE(check_label("--label", std::string(64, 'x') + "=a").ok());
  EXPECT_FALSE(holds("invalid", kNode.labels));
}

}  // namespace
}  // namespace muster
