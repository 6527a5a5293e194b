#include "common/files/user_rights.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster {
namespace {

constexpr uid_t kUser = 47'777;
constexpr gid_t kGroup = 48'888, kOtherGroup = 49'999;
const UserIds kIds{.uid = kUser, .gid = kGroup, .groups = {kGroup, kOtherGroup}};

bool can_read(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

class FileRightsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    ASSERT_EQ(chmod(folder_.path().c_str(), 0711), 0);
    write_file(secret_, "secret");
    ASSERT_EQ(chmod(secret_.c_str(), 0660), 0);  // root's group may read it, too
  }

  const TempFolder folder_;
  const std::string secret_ = folder_.file("secret");
};

TEST_F(FileRightsTest, OneThreadHasTheRightsOfTheUser) {
  bool is_read_elsewhere = false;
  const pid_t other = fork();
  if (other == 0) {
    execl("/bin/sleep", "sleep", "600", nullptr);
    _exit(127);
  }
  const absl::Cleanup end_other = [other] {
    kill(other, SIGKILL);
    waitpid(other, nullptr, 0);
  };
  const std::string environment = absl::StrCat("/proc/", other, "/environ");
  {
    const FileRights rights(kIds);
    ASSERT_TRUE(rights.status().ok()) << rights.status();
    EXPECT_FALSE(can_read(secret_));
    EXPECT_NE(faccessat(AT_FDCWD, secret_.c_str(), R_OK, AT_EACCESS), 0);
    // Capabilities open such files, whatever the user of a file operation is.
    EXPECT_FALSE(can_read(environment));
    std::thread([&] { is_read_elsewhere = can_read(secret_); }).join();
    EXPECT_FALSE(is_read_elsewhere) << "a new thread inherits the rights";
    ASSERT_EQ(chown(secret_.c_str(), kUser, kGroup), -1);
  }
  EXPECT_TRUE(can_read(secret_));
  EXPECT_TRUE(can_read(environment));
  std::thread([&] { is_read_elsewhere = can_read(secret_); }).join();
  EXPECT_TRUE(is_read_elsewhere);
}

TEST_F(FileRightsTest, IncludeTheUsersGroups) {
  ASSERT_EQ(chown(secret_.c_str(), 0, kOtherGroup), 0);
  {
    const FileRights rights(kIds);
    EXPECT_TRUE(can_read(secret_));
  }
  const FileRights rights(UserIds{.uid = kUser, .gid = kGroup, .groups = {kGroup}});
  EXPECT_FALSE(can_read(secret_));
}

// The kernel clears the request at each change of the rights.
TEST_F(FileRightsTest, TheParentsDeathIsStillSignalled) {
  ASSERT_EQ(prctl(PR_SET_PDEATHSIG, SIGTERM), 0);
  { const FileRights rights(kIds); }
  int signal = 0;
  EXPECT_EQ(prctl(PR_GET_PDEATHSIG, &signal), 0);
  EXPECT_EQ(signal, SIGTERM);
  prctl(PR_SET_PDEATHSIG, 0);
}

TEST_F(FileRightsTest, AreThoseOfAnotherOwnerOfAFolder) {
  EXPECT_EQ(foreign_owner(folder_.path()), std::nullopt);
  EXPECT_EQ(foreign_owner(folder_.file("none")), std::nullopt);
  ASSERT_EQ(chown(folder_.path().c_str(), kUser, kGroup), 0);
  EXPECT_EQ(foreign_owner(folder_.path()),
            (UserIds{.uid = kUser, .gid = kGroup, .groups = {kGroup}}));
  const UserIds unknown{.uid = kNobody, .gid = kNobody, .groups = {kNobody}};
  EXPECT_EQ(foreign_owner(folder_.file("secret")), unknown) << "no folder";
  const FileRights none{std::nullopt};
  EXPECT_TRUE(can_read(secret_));
}

// As FUSE lets a user do; such a file system may claim that root owns its files.
TEST_F(FileRightsTest, AFileSystemMountedOnAFolderHidesItsOwner) {
  const std::string own = folder_.file("own");
  ASSERT_EQ(mkdir(own.c_str(), 0700), 0);
  if (mount("none", own.c_str(), "tmpfs", 0, "size=4k") != 0)
    GTEST_SKIP() << "no mounts: errno " << errno;
  const auto owner = foreign_owner(own);
  ASSERT_EQ(umount(own.c_str()), 0);
  ASSERT_TRUE(owner);
  EXPECT_EQ(owner->uid, kNobody);
}

}  // namespace
}  // namespace muster
