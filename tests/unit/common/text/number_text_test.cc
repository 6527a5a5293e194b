#include "common/text/number_text.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(NumberText, OneIsSingular) {
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(0, "step"), "0 steps");
  EXPECT_EQ(counted(2, "document"), "2 documents");
}

TEST(NumberText, SmallValuesAreNotZero) {
  EXPECT_EQ(fixed_text(7.908, 3), "7.908");
  EXPECT_EQ(fixed_text(0.006, 2), "0.01");
  EXPECT_EQ(fixed_text(0.004, 2), "0.0040");
  EXPECT_EQ(fixed_text(0.0000416, 2), "0.000042");
  EXPECT_EQ(fixed_text(-0.00012, 2), "-0.00012");
  EXPECT_EQ(fixed_text(0, 2), "0.00");
  EXPECT_EQ(fixed_text(1e-20, 2), "0.00");
  EXPECT_EQ(fixed_text(1e300 * 1e300, 2), "inf");
}

}  // namespace
}  // namespace muster
