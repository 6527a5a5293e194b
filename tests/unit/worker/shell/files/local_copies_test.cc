#include "worker/shell/files/local_copies.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::UnorderedElementsAre;

TEST(LocalCopies, OfOtherStoresUsersAndPeopleStay) {
  const TempFolder root;
  const LocalCopies copies(root.path());
  const std::string three = copies.folder(StoreId(9), JobId(3));
  EXPECT_EQ(three, root.file("muster-" + std::to_string(geteuid()) + "-9-3"));
  const std::string four = copies.folder(StoreId(9), JobId(4));
  for (const std::string& folder :
       {three, four, copies.folder(StoreId(9), JobId(30)), copies.folder(StoreId(91), JobId(4)),
        root.file("muster-77777-9-4"), three + "x", root.file("psm_123"),
        root.file("muster-" + std::to_string(geteuid()) + "-9-04")})
    fs::create_directories(folder + "/120-00000000000000ff");
  EXPECT_THAT(copies.folders_but(StoreId(9), {JobId(3)}),
              UnorderedElementsAre(four, copies.folder(StoreId(9), JobId(30))));
  EXPECT_TRUE(LocalCopies(root.file("none")).folders_but(StoreId(9), {}).empty());
}

TEST(FolderRemover, FollowsNoLinks) {
  const TempFolder root;
  fs::create_directories(root.file("precious/file"));
  fs::create_directories(root.file("job/save"));
  fs::create_directory_symlink(root.file("precious"), root.file("job/save/link"));
  fs::create_directory_symlink(root.file("precious"), root.file("link"));
  {
    FolderRemover remover;
    for (const char* name : {"link", "job", "none"}) remover.remove(root.file(name));
  }
  EXPECT_FALSE(fs::exists(root.file("job")));
  EXPECT_TRUE(fs::exists(root.file("precious/file")));
  EXPECT_TRUE(fs::is_symlink(root.file("link")));
}

}  // namespace
}  // namespace muster::worker
