#include "worker/shell/files/protected_path.h"

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
using ::testing::HasSubstr;

constexpr uid_t kUser = 77'777;

class ProtectedPathTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    fs::create_directories(at("a/b"));
    write_file(at("a/b/token"), "secret");
    for (const char* path : {"", "a", "a/b", "a/b/token"})
      ASSERT_EQ(chmod(at(path).c_str(), 0700), 0);
  }

  std::string at(const std::string& name) const { return folder_.file(name); }
  std::string problem(const std::string& name) const {
    return std::string(check_protected(at(name)).message());
  }

  const TempFolder folder_;
};

TEST_F(ProtectedPathTest, AFileOfRootInFoldersOfRootIsProtected) {
  EXPECT_EQ(problem("a/b/token"), "");
  EXPECT_EQ(problem("a/../a/./b/token"), "");
  EXPECT_EQ(problem("a/b"), "");
  EXPECT_THAT(problem("a/none"), HasSubstr("a/none: No such file"));
}

TEST_F(ProtectedPathTest, OwnersAndWritersOfEachPartAreChecked) {
  for (const char* path : {"a/b/token", "a/b", "a"}) {
    ASSERT_EQ(chown(at(path).c_str(), kUser, 0), 0);
    EXPECT_THAT(problem("a/b/token"), HasSubstr(at(path) + " belongs to the user 77777"));
    ASSERT_EQ(chown(at(path).c_str(), 0, 0), 0);
    ASSERT_EQ(chmod(at(path).c_str(), 0702), 0);
    EXPECT_THAT(problem("a/b/token"), HasSubstr("may write to " + at(path) + ": chmod go-w"));
    ASSERT_EQ(chmod(at(path).c_str(), 0720), 0);
    EXPECT_EQ(problem("a/b/token"), "") << "the group is root's";
    ASSERT_EQ(chown(at(path).c_str(), 0, kUser), 0);
    EXPECT_THAT(problem("a/b/token"), HasSubstr("may write to " + at(path)));
    ASSERT_EQ(chmod(at(path).c_str(), 0700), 0);
  }
}

TEST_F(ProtectedPathTest, TheStickyBitProtectsOnTheWay) {
  ASSERT_EQ(chmod(at("a").c_str(), 01777), 0);
  EXPECT_EQ(problem("a/b/token"), "");
  EXPECT_THAT(problem("a"), HasSubstr("may write to"));
}

TEST_F(ProtectedPathTest, LinksAreFollowedAndChecked) {
  fs::create_directory_symlink("a/b", at("link"));
  fs::create_symlink(at("link/token"), at("second"));
  EXPECT_EQ(problem("second"), "");
  ASSERT_EQ(chmod(at("a").c_str(), 0707), 0);
  EXPECT_THAT(problem("second"), HasSubstr("may write to " + at("a")));
  ASSERT_EQ(chmod(at("a").c_str(), 0700), 0);
  ASSERT_EQ(lchown(at("link").c_str(), kUser, kUser), 0);
  EXPECT_THAT(problem("second"), HasSubstr(at("link") + " belongs to the user"));
  fs::create_symlink("loop", at("loop"));
  EXPECT_FALSE(check_protected(at("loop")).ok());
}

}  // namespace
}  // namespace muster::worker
