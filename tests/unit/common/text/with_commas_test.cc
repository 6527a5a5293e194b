#include "common/text/with_commas.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(WithCommas, GroupsThousands) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(4168), "4,168");
  EXPECT_EQ(with_commas(-123456), "-123,456");
  EXPECT_EQ(with_commas(6738415616), "6,738,415,616");
}

}  // namespace
}  // namespace muster
