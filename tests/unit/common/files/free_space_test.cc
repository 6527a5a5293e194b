#include "common/files/free_space.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster {
namespace {

TEST(FreeSpace, IsTheFileSystems) {
  const TempFolder folder;
  const auto free = free_space_bytes(folder.path());
  ASSERT_TRUE(free.has_value());
  EXPECT_LE(*free, std::filesystem::space(folder.path()).capacity);
  EXPECT_EQ(free_space_bytes("/proc/self"), 0U) << "procfs has no free space";
}

TEST(FreeSpace, OfNothingIsUnknown) {
  const TempFolder folder;
  EXPECT_FALSE(free_space_bytes(folder.file("missing")).has_value());
}

}  // namespace
}  // namespace muster
