#include "common/process/read_watch.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster {
namespace {

class ReadWatchTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK), 0); }
  void TearDown() override {
    for (const int end : ends_) close(end);
  }
  void put(const std::string& text) const {
    ASSERT_EQ(write(ends_[1], text.data(), text.size()), std::ssize(text));
  }

  std::array<int, 2> ends_{};
};

TEST_F(ReadWatchTest, ReportsReadsOnly) {
  const auto watch = ReadWatch::start(ends_[0]);
  if (watch == nullptr) GTEST_SKIP() << "this kernel does not report reads of pipes";
  char byte = 0;
  EXPECT_LT(read(ends_[0], &byte, 1), 0) << "nothing to read is no read";
  put("text");
  EXPECT_FALSE(watch->was_read());
  ASSERT_EQ(read(ends_[0], &byte, 1), 1);
  EXPECT_TRUE(watch->was_read());
  EXPECT_TRUE(watch->was_read()) << "and stays so";
}

TEST_F(ReadWatchTest, AnEndWithoutAByteIsNoRead) {
  const auto watch = ReadWatch::start(ends_[0]);
  if (watch == nullptr) GTEST_SKIP() << "this kernel does not report reads of pipes";
  close(ends_[1]);
  char byte = 0;
  EXPECT_EQ(read(ends_[0], &byte, 1), 0);
  EXPECT_FALSE(watch->was_read());
  ends_[1] = dup(ends_[0]);
}

TEST_F(ReadWatchTest, ReportsReadsByOtherDescriptorsAndCalls) {
  for (const bool splices : {false, true}) {
    const auto watch = ReadWatch::start(ends_[0]);
    if (watch == nullptr) GTEST_SKIP() << "this kernel does not report reads of pipes";
    const int other = dup(ends_[0]);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    put("ab");
    char byte = 0;
    const ssize_t got =
        splices ? splice(other, nullptr, nowhere, nullptr, 2, 0) : read(other, &byte, 1);
    EXPECT_GT(got, 0);
    EXPECT_TRUE(watch->was_read()) << splices;
    close(other);
    close(nowhere);
  }
}

TEST_F(ReadWatchTest, ANamedPipeIsOne) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo(folder.file("fifo").c_str(), 0600), 0);
  const int fd = open(folder.file("fifo").c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  const auto watch = ReadWatch::start(fd);
  if (watch == nullptr) GTEST_SKIP() << "this kernel does not report reads of pipes";
  ASSERT_EQ(write(fd, "a", 1), 1);
  EXPECT_FALSE(watch->was_read());
  char byte = 0;
  ASSERT_EQ(read(fd, &byte, 1), 1);
  EXPECT_TRUE(watch->was_read());
  close(fd);
}

TEST_F(ReadWatchTest, OtherDescriptorsAreNotWatched) {
  const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(ReadWatch::start(file), nullptr);
  EXPECT_EQ(ReadWatch::start(-1), nullptr);
  close(file);
  std::array<int, 2> sockets{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
  EXPECT_EQ(ReadWatch::start(sockets[0]), nullptr);
  for (const int socket : sockets) close(socket);
}

}  // namespace
}  // namespace muster
