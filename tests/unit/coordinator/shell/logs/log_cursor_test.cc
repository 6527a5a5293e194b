#include "coordinator/shell/logs/log_cursor.h"

#include <gtest/gtest.h>

#include "coordinator/shell/logs/log_text.h"
#include "coordinator/shell/logs/old_logs.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

const JobId kCursorJob(1);
const LogWriter kCursorWriter{WorkerName("n1"), Incarnation(7)};

class LogCursorTest : public testing::Test {
 protected:
  void begin_attempt(uint32_t attempt, bool ended = false) {
    logs_.set_scope(kCursorJob, {.newest_attempt = Attempt(attempt), .ranks = 1, .ended = ended},
                    {{Rank(0), WorkerName("n1"), 0, Incarnation(7)}});
  }
  void append(uint32_t attempt, uint64_t offset, const std::string& text) {
    const auto end =
        logs_.append(kCursorWriter, kCursorJob, Attempt(attempt), Rank(0), offset, text);
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(*end, offset + text.size());
  }
  LogCursor cursor(LogStart start) {
    v1::FollowLogsRequest request;
    request.set_job_id(1);
    request.set_rank(0);
    request.set_follow(true);
    LogCursor cursor(logs_, request, start);
    EXPECT_TRUE(cursor.begin(logs_.scope(kCursorJob)).ok());
    return cursor;
  }
  // Returns all chunks of now, as "attempt:text".
  static std::vector<std::string> read(LogCursor& cursor) {
    std::vector<std::string> chunks;
    while (chunks.size() < 100) {
      const auto chunk = cursor.next();
      EXPECT_TRUE(chunk.ok()) << chunk.status();
      if (!chunk.ok() || !*chunk) break;
      chunks.push_back(absl::StrCat((*chunk)->attempt(), ":", (*chunk)->data()));
    }
    return chunks;
  }

  TempFolder folder_;
  LogStore logs_{folder_.path(), 1 << 20};
};

using Chunks = std::vector<std::string>;

// The fault that was reported: the last lines of the attempt that crashed were skipped.
TEST_F(LogCursorTest, AClientContinuesAcrossAttempts) {
  begin_attempt(1);
  append(1, 0, "seen, then the crash");
  begin_attempt(2);
  append(2, 0, "again");
  begin_attempt(3);
  append(3, 0, "and again");
  LogCursor continued = cursor({.tail_bytes = 2, .at = std::pair{Attempt(1), uint64_t{5}}});
  EXPECT_EQ(read(continued), (Chunks{"1: then the crash", "2:again", "3:and again"}));
  LogCursor begun = cursor({.tail_bytes = 5});
  EXPECT_EQ(read(begun), (Chunks{"3:again"}));
  begin_attempt(4);
  append(4, 0, "all of it");
  begun.on_scope(*logs_.scope(kCursorJob));
  EXPECT_EQ(read(begun), (Chunks{"4:all of it"}));
}

TEST_F(LogCursorTest, AClientContinuesAfterItsAttemptWasRemoved) {
  for (uint32_t attempt = 1; attempt <= 3; ++attempt) {
    begin_attempt(attempt);
    append(attempt, 0, "output");
  }
  remove_old_logs(folder_.file("1"), Attempt(2), {.age_max = Duration::zero()});
  LogCursor continued = cursor({.tail_bytes = 2, .at = std::pair{Attempt(1), uint64_t{5}}});
  EXPECT_EQ(read(continued), (Chunks{"3:output"}));
}

TEST_F(LogCursorTest, CharactersAreNotCut) {
  begin_attempt(1);
  append(1, 0, "wörld \xe2\x82");
  LogCursor text = cursor({.tail_bytes = 7});
  EXPECT_EQ(read(text), (Chunks{"1:rld "})) << "begins after the half of ö";
  text.on_output(Attempt(1), Rank(0));
  EXPECT_EQ(read(text), Chunks{});
  append(1, 9, "\xac.");
  text.on_output(Attempt(1), Rank(0));
  EXPECT_EQ(read(text), (Chunks{"1:€."}));
  append(1, 11, "\xe2\x82");
  text.on_output(Attempt(1), Rank(0));
  EXPECT_EQ(read(text), Chunks{});
  begin_attempt(1, /*ended=*/true);
  text.on_scope(*logs_.scope(kCursorJob));
  EXPECT_EQ(read(text), (Chunks{"1:\xe2\x82"})) << "nothing follows";
  EXPECT_FALSE(text.more_may_come());
}

TEST_F(LogCursorTest, PartsOfALogHaveWholeCharacters) {
  begin_attempt(1);
  append(1, 0, "a€b\xff\xff");
  const LogPart part{kCursorJob, Attempt(1), Rank(0)};
  const auto read = [&](uint64_t offset, size_t bytes) {
    return *read_text(logs_, part, offset, bytes, /*may_grow=*/true);
  };
  EXPECT_EQ(read(0, 3), "a");
  EXPECT_EQ(read(1, 1), "€") << "a character is longer than the limit";
  EXPECT_EQ(read(1, 100), "€b\xff\xff");
  EXPECT_EQ(read(7, 100), "");
  EXPECT_EQ(next_character(logs_, part, 2), 4U);
  EXPECT_EQ(next_character(logs_, part, 1), 1U);
  for (const char* text : {"", "a", "ö", "€", "😀", "\x80\x80\x80\x80", "\xff"})
    EXPECT_EQ(whole_characters(text), std::string_view(text).size()) << text;
  for (const char* text : {"\xc3", "\xe2\x82", "\xf0\x9f\x98"})
    EXPECT_EQ(whole_characters(std::string("x") + text), 1U) << text;
}

}  // namespace
}  // namespace muster::coordinator
