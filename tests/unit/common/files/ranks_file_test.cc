// Files that another user could have replaced.
#include "common/files/ranks_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include <gtest/gtest.h>

#include "common/progress/progress_page.h"
#include "tests/unit/temp_folder.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kUser = 47'777;

bool opens(const std::string& path, int access = O_RDONLY) {
  const int fd = open_ranks_file(path, access);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

TEST(RanksFile, OnlyAPlainFileIsOpened) {
  const TempFolder folder;
  const std::string secret = folder.file("secret");
  write_file(secret, "secret");
  EXPECT_TRUE(opens(secret));
  EXPECT_FALSE(opens(folder.file("none")));
  EXPECT_EQ(errno, ENOENT);
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(opens(folder.file("pipe"))) << "does not wait for a writer";
  EXPECT_EQ(errno, EPERM);
  EXPECT_FALSE(opens(folder.file("pipe"), O_WRONLY)) << "does not wait for a reader";
  EXPECT_FALSE(opens(folder.path()));
  EXPECT_EQ(errno, EPERM);
  // Backups may be hard links, and a person may have moved a log to another disk.
  fs::create_symlink(secret, folder.file("link"));
  EXPECT_TRUE(opens(folder.file("link")));
  fs::create_hard_link(secret, folder.file("other name"));
  EXPECT_TRUE(opens(folder.file("other name"), O_WRONLY | O_APPEND));
}

TEST(RanksFile, InAUsersFolderItHasTheUsersRights) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const TempFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0711), 0);
  const std::string own = folder.file("own");
  fs::create_directory(own);
  ASSERT_EQ(chown(own.c_str(), kUser, kUser), 0);
  // As a secret of root to which the user made a second name, before root replaced the first one.
  write_file(own + "/secret", "secret");
  ASSERT_EQ(chmod((own + "/secret").c_str(), 0600), 0);
  EXPECT_FALSE(opens(own + "/secret"));
  EXPECT_EQ(errno, EACCES);
  ASSERT_TRUE(opens(own + "/made", O_WRONLY | O_CREAT));
  struct stat info {};
  ASSERT_EQ(stat((own + "/made").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, kUser);

  fs::create_symlink("made", own + "/link");
  EXPECT_FALSE(opens(own + "/link"));
  EXPECT_EQ(errno, ELOOP);
  fs::create_hard_link(own + "/made", own + "/other name");
  for (const char* name : {"/made", "/other name"}) {
    EXPECT_FALSE(opens(own + name));
    EXPECT_EQ(errno, EPERM);
    EXPECT_FALSE(opens(own + name, O_WRONLY | O_APPEND));
  }
}

TEST(RanksFile, AProgressPageIsReadFromTheRanksOwnFileAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const TempFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0711), 0);
  const std::string own = folder.file("own"), page = own + "/page";
  fs::create_directory(own);
  ASSERT_TRUE(ProgressWriter::create(page, {}).ok());
  for (const std::string& path : {own, page}) ASSERT_EQ(chown(path.c_str(), kUser, kUser), 0);
  EXPECT_TRUE(read_progress_page(page).ok());
  fs::create_symlink(page, own + "/link");
  EXPECT_FALSE(read_progress_page(own + "/link").ok());
  fs::create_hard_link(page, own + "/other name");
  EXPECT_FALSE(read_progress_page(own + "/other name").ok());
}

}  // namespace
}  // namespace muster
