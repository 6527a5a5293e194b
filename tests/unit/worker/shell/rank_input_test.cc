#include "worker/shell/rank_input.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

// Reads what a rank would.
std::string read_as_rank(int fd) {
  std::string text(100, '\0');
  const ssize_t got = read(fd, text.data(), text.size());
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

TEST(RankInput, AFileBeginsAnewForEachAttempt) {
  const TempFolder folder;
  write_file(folder.file("input"), "head\nprogram\n");
  const int fd = open(folder.file("input").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(lseek(fd, 5, SEEK_SET), 5);  // what a shell has read of it is gone
  RankInput input(fd);
  for (int attempt = 0; attempt < 3; ++attempt) {
    EXPECT_EQ(input.prepare(), absl::OkStatus());
    EXPECT_EQ(read_as_rank(input.fd()), "program\n") << attempt;
  }
  close(fd);
}

struct PipeCase {
  const char* name;
  std::string data;
  bool rank_reads;
  bool writer_leaves;
  bool may_restart;
};

const PipeCase kPipeCases[] = {
    {"read to its end", "program", true, true, false},
    {"not read", "program", false, true, true},
    {"empty from the start", "", true, true, true},
    {"a writer that stays", "program", true, false, true},
    {"nothing yet", "", true, false, true},
};

// A program that finds no input may succeed without having done anything.
TEST(RankInput, APipeThatWasReadIsNotReadAgain) {
  for (const PipeCase& one : kPipeCases) {
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
    RankInput input(ends[0]);
    ASSERT_EQ(write(ends[1], one.data.data(), one.data.size()), std::ssize(one.data));
    if (one.writer_leaves) close(ends[1]);
    ASSERT_EQ(input.prepare(), absl::OkStatus()) << one.name;
    if (one.rank_reads) read_as_rank(ends[0]);
    const absl::Status again = input.prepare();
    EXPECT_EQ(again.ok(), one.may_restart) << one.name << ": " << again;
    if (!again.ok()) {
      EXPECT_TRUE(absl::IsPermissionDenied(again)) << "which is not retried";
      EXPECT_THAT(std::string(again.message()), testing::HasSubstr("--stdin none"));
    }
    close(ends[0]);
    if (!one.writer_leaves) close(ends[1]);
  }
}

TEST(RankInput, ADeviceIsAlwaysReady) {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  RankInput input(fd);
  for (int attempt = 0; attempt < 3; ++attempt) EXPECT_EQ(input.prepare(), absl::OkStatus());
  close(fd);
}

}  // namespace
}  // namespace muster::worker
