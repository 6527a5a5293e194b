#include "worker/shell/ranks/rank_input.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
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

TEST(RankInput, AFileIsReadFromItsStartByEachAttempt) {
  const TempFolder folder;
  write_file(folder.file("input"), "head\nprogram\n");
  const int fd = open(folder.file("input").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(lseek(fd, 5, SEEK_SET), 5);  // a shell has consumed the first bytes
  const RankInput input(fd, InputMark::of(fd));
  for (int attempt = 0; attempt < 3; ++attempt) {
    EXPECT_EQ(input.prepare(), absl::OkStatus());
    EXPECT_EQ(read_as_rank(input.fd()), "program\n") << attempt;
  }
  close(fd);
}

// The state of an input that is no file, and what happens to it during the first attempt.
struct StreamCase {
  const char* name;
  std::string before;  // written before the first attempt
  std::string during;  // written after its start
  bool rank_reads;
  bool ends_before;  // the writer leaves before the attempt
  bool ends_during;
  bool may_restart;
  // The same if the kernel reports reads of pipes.
  bool may_restart_if_watched;
};

const StreamCase kStreamCases[] = {
    {"read to its end", "program", "", true, true, false, false, false},
    {"read to its end while the rank runs", "program", "", true, false, true, false, false},
    {"a slow writer", "", "program", true, false, true, false, false},
    {"not read", "program", "", false, true, false, true, true},
    {"empty from the start", "", "", true, true, false, true, true},
    {"a writer that stays", "program", "", true, false, false, true, true},
    {"a slow writer that stays", "", "program", true, false, false, true, true},
    {"nothing yet", "", "", true, false, false, true, true},
    {"a writer that leaves without a word", "", "", true, false, true, false, true},
    {"no rank reads, and the writer leaves", "", "", false, false, true, false, true},
    {"read in part, and the writer leaves", std::string(150, 'x'), "", true, false, true, true,
     true},
};

enum class StreamKind { kPipe, kSocket, kSocketShutDown };

void put_text(int fd, const std::string& text) {
  if (text.empty()) return;  // the writer may have left
  ASSERT_EQ(write(fd, text.data(), text.size()), std::ssize(text));
}

// A program that finds no input may succeed without having done anything. A worker that replaces a
// dead one receives the mark of the first one as text.
void check_stream(const StreamCase& one, StreamKind stream, bool is_new_worker) {
  std::array<int, 2> ends{};
  if (stream == StreamKind::kPipe) {
    ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
  } else {
    constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    ASSERT_EQ(socketpair(AF_UNIX, kType, 0, ends.data()), 0);
  }
  bool is_open = true;
  const auto end_writing = [&] {
    if (stream == StreamKind::kSocketShutDown) {
      shutdown(ends[1], SHUT_WR);
    } else {
      close(ends[1]);
      is_open = false;
    }
  };
  put_text(ends[1], one.before);
  if (one.ends_before) end_writing();
  const InputMark first = InputMark::of(ends[0]);
  const RankInput input(ends[0], first);
  ASSERT_EQ(input.prepare(), absl::OkStatus()) << one.name;
  put_text(ends[1], one.during);
  if (one.rank_reads) read_as_rank(ends[0]);
  if (one.ends_during) end_writing();
  // A worker that replaces a dead one has no report of earlier reads.
  const auto received = InputMark::parse(first.after_reader().text());
  ASSERT_TRUE(received.has_value()) << first.text();
  const RankInput next(ends[0], *received);
  const absl::Status again = (is_new_worker ? next : input).prepare();
  const bool is_watched = stream == StreamKind::kPipe && !is_new_worker;
  EXPECT_EQ(again.ok(), is_watched ? one.may_restart_if_watched : one.may_restart)
      << one.name << ", " << first.text() << ": " << again;
  if (!again.ok()) {
    EXPECT_TRUE(absl::IsPermissionDenied(again)) << "which is not retried";
    EXPECT_THAT(std::string(again.message()), testing::HasSubstr("--stdin none"));
  }
  close(ends[0]);
  if (is_open) close(ends[1]);
}

TEST(RankInput, WhatWasReadOfAPipeOrSocketIsNotReadAgain) {
  for (const StreamKind stream :
       {StreamKind::kPipe, StreamKind::kSocket, StreamKind::kSocketShutDown})
    for (const StreamCase& one : kStreamCases)
      for (const bool is_new_worker : {false, true}) check_stream(one, stream, is_new_worker);
}

TEST(RankInput, AHangUpOfATerminalStopsNoAttempt) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const RankInput input(ends[0], InputMark::parse(InputMark::of_terminal().text()).value());
  EXPECT_EQ(input.prepare(), absl::OkStatus());
  close(ends[1]);
  EXPECT_EQ(input.prepare(), absl::OkStatus());
  close(ends[0]);
}

TEST(RankInput, AFileBeginsWhereTheFirstWorkerFoundIt) {
  const TempFolder folder;
  write_file(folder.file("input"), "head\nprogram\n");
  const int fd = open(folder.file("input").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(lseek(fd, 5, SEEK_SET), 5);
  const InputMark first = InputMark::of(fd);
  EXPECT_EQ(read_as_rank(fd), "program\n");
  const RankInput next(fd, InputMark::parse(first.text()).value());
  EXPECT_EQ(next.prepare(), absl::OkStatus());
  EXPECT_EQ(read_as_rank(fd), "program\n");
  close(fd);
}

TEST(InputMark, OtherTextsAreNone) {
  for (const char* text :
       {"", "file", "file:", "file:-1", "file:x", "stream ", "unread-", "file:1 "})
    EXPECT_FALSE(InputMark::parse(text).has_value()) << text;
}

TEST(RankInput, ADeviceIsAlwaysReady) {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const RankInput input(fd, InputMark::of(fd));
  for (int attempt = 0; attempt < 3; ++attempt) EXPECT_EQ(input.prepare(), absl::OkStatus());
  close(fd);
}

}  // namespace
}  // namespace muster::worker
