#include "common/files/append_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster {
namespace {

constexpr char kRow[] = "{\"step\":1,\"loss\":2.5}\n";
constexpr char kNextRow[] = "{\"step\":2,\"loss\":2.25}\n";

TEST(AppendFileTest, ARecordThatDoesNotFitLeavesNoPart) {
  const TempFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  // A limit of the file's size takes the place of a full disk. It holds for a whole process.
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{.rlim_cur = 30, .rlim_max = 30};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    const auto file = AppendFile::open(path);
    if (!file.ok() || !(*file)->append(kRow).ok()) _exit(3);
    _exit((*file)->append(kNextRow).ok() ? 4 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(path), kRow);
}

TEST(AppendFileTest, APipeTakesRecords) {
  const TempFolder folder;
  const std::string path = folder.file("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const pid_t reader = fork();
  if (reader == 0) _exit(read_file(path) == kRow ? 0 : 1);
  {
    const auto file = AppendFile::open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE((*file)->end_last_line([](std::string_view) { return false; }).ok());
    EXPECT_TRUE((*file)->append(kRow).ok());
  }
  int status = 0;
  ASSERT_EQ(waitpid(reader, &status, 0), reader);
  EXPECT_EQ(status, 0);
}

TEST(AppendFileTest, AnErrorNamesThePath) {
  const TempFolder folder;
  const auto file = AppendFile::open(folder.file("no/such/folder"));
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().message().find(folder.file("no/such/folder")), std::string::npos);
}

}  // namespace
}  // namespace muster
