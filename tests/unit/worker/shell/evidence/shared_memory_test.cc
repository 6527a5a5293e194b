#include "worker/shell/evidence/shared_memory.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

constexpr char kRemedy[] = ": Docker needs --shm-size, Kubernetes an emptyDir in memory";

TEST(SharedMemoryTest, ASmallOrFullFileSystemIsTheReason) {
  constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;
  struct {
    const char* name;
    uint64_t size, free;
    std::string text;
  } const cases[] = {
      {"Docker's default, full", 64 * kMiB, 0, "/dev/shm of 64 MiB is full"},
      {"Docker's default, freed since", 64 * kMiB, 64 * kMiB,
       "/dev/shm has only 64 MiB, which may have been full"},
      {"a page", 4 * kKiB, 4 * kKiB, "/dev/shm of 0.003906 MiB is full"},
      {"half a MiB", 512 * kKiB, 512 * kKiB, "/dev/shm has only 0.5 MiB, which may have been full"},
      {"one page above the default", 64 * kMiB + 4 * kKiB, 64 * kMiB, ""},
      {"large and full", 8 * kGiB, 60 * kKiB, "/dev/shm of 8192 MiB is full"},
      {"large, almost full", 8 * kGiB, 64 * kKiB, ""},
      {"large and empty", 8 * kGiB, 8 * kGiB, ""},
      {"without a limit", 0, 0, ""},
  };
  for (const auto& one : cases)
    EXPECT_EQ(shared_memory_text("/dev/shm", one.size, one.free),
              absl::StrCat(one.text, one.text.empty() ? "" : kRemedy))
        << one.name;
}

TEST(SharedMemoryTest, SizesOfARealFileSystem) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting needs root";
  const TempFolder temporary;
  const std::string folder = temporary.file("shm");
  EXPECT_EQ(shared_memory_text(folder), "") << "there is no such folder";
  std::filesystem::create_directory(folder);
  struct {
    const char* size;
    off_t used;
    std::string text;
  } const cases[] = {
      {"size=64m", 0, folder + " has only 64 MiB, which may have been full" + kRemedy},
      {"size=64m", 64 << 20, folder + " of 64 MiB is full" + kRemedy},
      {"size=1m", 1 << 20, folder + " of 1 MiB is full" + kRemedy},
      {"size=65m", 0, ""},
      {"size=65m", 65 << 20, folder + " of 65 MiB is full" + kRemedy},
  };
  for (const auto& one : cases) {
    if (mount("muster", folder.c_str(), "tmpfs", 0, one.size) != 0)
      GTEST_SKIP() << "no mounts here";
    const int fd = open((folder + "/used").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (one.used > 0) {
      EXPECT_EQ(posix_fallocate(fd, 0, one.used), 0) << one.size;
    }
    EXPECT_EQ(shared_memory_text(folder), one.text) << one.size << ", " << one.used;
    close(fd);
    umount(folder.c_str());
  }
}

}  // namespace
}  // namespace muster::worker
