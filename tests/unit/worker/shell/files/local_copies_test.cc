#include "worker/shell/files/local_copies.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
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
  const auto folder = [&](uint64_t store, uint64_t job) {
    return copies.folder(StoreId(store), JobId(job), geteuid());
  };
  const std::string three = folder(9, 3);
  EXPECT_EQ(three, root.file("muster-" + std::to_string(geteuid()) + "-9-3"));
  for (const std::string& made : {three, folder(9, 4), folder(9, 30), folder(91, 4),
                                  root.file("muster-47'777-9-4"), three + "x", root.file("psm_123"),
                                  root.file("muster-" + std::to_string(geteuid()) + "-9-04")})
    fs::create_directories(made + "/120-00000000000000ff");
  EXPECT_THAT(copies.folders_but(StoreId(9), {JobId(3)}),
              UnorderedElementsAre(folder(9, 4), folder(9, 30)));
  EXPECT_THAT(copies.folders_of(StoreId(9), JobId(4)), UnorderedElementsAre(folder(9, 4)));
  EXPECT_TRUE(LocalCopies(root.file("none")).folders_but(StoreId(9), {}).empty());
}

TEST(LocalCopies, OfAllUsersAreFoundIfRanksRunAsThem) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const TempFolder root;
  ASSERT_EQ(chmod(root.path().c_str(), 01777), 0);  // as /dev/shm has
  const LocalCopies copies(root.path(), /*has_users=*/true);
  const std::string theirs = copies.folder(StoreId(9), JobId(3), 47'777);
  fs::create_directories(theirs);
  EXPECT_TRUE(copies.folders_of(StoreId(9), JobId(3)).empty()) << "the name alone proves nothing";
  ASSERT_EQ(chown(theirs.c_str(), 47'777, 47'777), 0);
  EXPECT_THAT(copies.folders_of(StoreId(9), JobId(3)), UnorderedElementsAre(theirs));
  {
    FolderRemover remover;
    remover.remove(theirs);
  }
  EXPECT_FALSE(fs::exists(theirs));
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
