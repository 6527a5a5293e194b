#include "common/text/natural_order.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(NaturalOrder, OrdersNumbersByValue) {
  EXPECT_TRUE(natural_less("node7", "node66"));
  EXPECT_FALSE(natural_less("node66", "node7"));
  EXPECT_TRUE(natural_less("rack2-node10", "rack10-node1"));
  EXPECT_TRUE(natural_less("a", "a1"));
  EXPECT_TRUE(natural_less("node9", "node09b"));
  EXPECT_TRUE(natural_less("n184467440737095516150", "n184467440737095516151"));
  EXPECT_TRUE(natural_less("", "0"));
}

TEST(NaturalOrder, IsAStrictTotalOrder) {
  std::vector<std::string> names = {"",   "0",   "00",   "a",   "a0", "a00", "a01",
                                    "a1", "a1b", "a01b", "a10", "b",  "1a",  "01a"};
  for (const auto& a : names) {
    EXPECT_FALSE(natural_less(a, a)) << a;
    for (const auto& b : names) {
      if (a != b) {
        EXPECT_NE(natural_less(a, b), natural_less(b, a)) << a << " " << b;
      }
      for (const auto& c : names) {
        if (natural_less(a, b) && natural_less(b, c)) {
          EXPECT_TRUE(natural_less(a, c)) << a << " " << b << " " << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace muster
