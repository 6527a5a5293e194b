#include "worker/shell/files/protected_path.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uid_t kUser = 47'777;

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
    EXPECT_THAT(problem("a/b/token"), HasSubstr(at(path) + " belongs to the user 47777"));
    ASSERT_EQ(chown(at(path).c_str(), 0, 0), 0);
    ASSERT_EQ(chmod(at(path).c_str(), 0702), 0);
    EXPECT_THAT(problem("a/b/token"), HasSubstr("may write to " + at(path) + ": chmod go-w"));
    ASSERT_EQ(chmod(at(path).c_str(), 0720), 0);
    EXPECT_THAT(problem("a/b/token"), HasSubstr("may write to " + at(path))) << "root's group";
    ASSERT_EQ(chmod(at(path).c_str(), 0700), 0);
  }
}

TEST_F(ProtectedPathTest, AnAccessControlListMayPermitWriting) {
  // Version 2, and entries of a tag, permissions and an id: the owner, a user, the group, the mask
  // and others.
  constexpr uint32_t kNone = ~uint32_t{0};
  const auto entry = [](uint16_t tag, uint16_t permissions, uint32_t id) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &tag, 2);
    std::memcpy(bytes.data() + 2, &permissions, 2);
    std::memcpy(bytes.data() + 4, &id, 4);
    return bytes;
  };
  const auto set_list = [&](uint16_t of_user) {
    const std::string list = std::string("\2\0\0\0", 4) + entry(0x01, 7, kNone) +
                             entry(0x02, of_user, kUser) + entry(0x04, 0, kNone) +
                             entry(0x10, of_user, kNone) + entry(0x20, 0, kNone);
    return setxattr(at("a").c_str(), "system.posix_acl_access", list.data(), list.size(), 0) == 0;
  };
  if (!set_list(5)) GTEST_SKIP() << "no access control lists here: errno " << errno;
  EXPECT_EQ(problem("a/b/token"), "");
  ASSERT_TRUE(set_list(7));
  EXPECT_THAT(problem("a/b/token"), HasSubstr("may write to " + at("a")));
  ASSERT_EQ(chmod(at("a").c_str(), 0750), 0);
  EXPECT_EQ(problem("a/b/token"), "") << "the message's remedy";
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
