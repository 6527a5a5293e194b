#include "common/files/missing_folders.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MissingFolders, DeepestFirstAndOnlyEmptyOnesAreRemoved) {
  const TempFolder folder;
  const fs::path top = folder.file("a"), below = top / "b", deepest = below / "c";
  EXPECT_THAT(missing_folders(folder.path()), IsEmpty());
  const auto missing = missing_folders(deepest);
  EXPECT_THAT(missing, ElementsAre(deepest, below, top));
  fs::create_directories(deepest);
  write_file((top / "kept").string(), "");
  remove_empty(missing);
  EXPECT_FALSE(fs::exists(below));
  EXPECT_TRUE(fs::exists(top / "kept"));
}

TEST(MissingFolders, ARelativePathEnds) {
  EXPECT_THAT(missing_folders(""), IsEmpty());
  EXPECT_THAT(missing_folders("no-such-folder/x"),
              ElementsAre("no-such-folder/x", "no-such-folder"));
}

}  // namespace
}  // namespace muster
