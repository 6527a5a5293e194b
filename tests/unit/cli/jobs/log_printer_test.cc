#include "cli/jobs/log_printer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/cli/terminal/captured_fd.h"
#include "tests/unit/cli/terminal/pseudo_terminal.h"

namespace muster::cli {
namespace {

v1::LogChunk chunk(uint32_t attempt, int32_t rank, uint64_t offset, const std::string& data) {
  v1::LogChunk chunk;
  chunk.set_attempt(attempt);
  chunk.set_rank(rank);
  chunk.set_offset(offset);
  chunk.set_data(data);
  return chunk;
}

TEST(ParseStepLine, EveryFormSince2023) {
  const auto now = parse_step_line(
      "completed step: 49, seconds: 7.908, TFLOP/s/device: 460.480, Tokens/s/device: 1035.970, "
      "total_weights: 524288, loss: 0.250");
  ASSERT_TRUE(now.has_value());
  EXPECT_EQ(now->step, 49);
  EXPECT_DOUBLE_EQ(now->tokens_per_second, 1035.970);
  EXPECT_DOUBLE_EQ(now->loss, 0.25);
  const auto old = parse_step_line("completed step: 3, seconds: 1.000, TFLOP/s: 4.000, loss 2.500");
  ASSERT_TRUE(old.has_value());
  EXPECT_DOUBLE_EQ(old->loss, 2.5);
}

TEST(ParseStepLine, RejectsOtherLines) {
  for (const char* line :
       {"", "completed step: ", "completed step: x, loss: 1", "completed step: 4",
        "completed step: 4, loss: many", "step: 4, loss: 1"}) {
    EXPECT_FALSE(parse_step_line(line).has_value()) << line;
  }
}

class LogPrinterTest : public ::testing::Test {
 protected:
  LogPrinterOptions options(int32_t main_rank = 0) const {
    return {.main_rank = main_rank, .steps = 10};
  }
  CapturedFd out_, notices_;
  Output output_{out_.fd()}, notice_output_{notices_.fd()};
};

TEST_F(LogPrinterTest, TheMainRankIsUnchangedAndOthersHaveAPrefix) {
  LogPrinter printer(output_, notice_output_, options());
  EXPECT_TRUE(printer.take(chunk(1, 0, 0, "one\ntwo\n")));
  EXPECT_TRUE(printer.take(chunk(1, 3, 0, "trouble\n")));
  printer.notice("RUNNING");
  printer.finish();
  EXPECT_EQ(out_.text(), "one\ntwo\n");
  EXPECT_EQ(notices_.text(), "[rank 3] trouble\nmuster: RUNNING\n");
}

TEST_F(LogPrinterTest, AllRanksHaveAPrefix) {
  LogPrinter printer(output_, notice_output_, options(-1));
  printer.take(chunk(1, 0, 0, "a\n"));
  printer.take(chunk(1, 1, 0, "b\n"));
  printer.finish();
  EXPECT_EQ(out_.text(), "[rank 0] a\n[rank 1] b\n");
}

TEST_F(LogPrinterTest, JsonHasAnObjectPerLine) {
  LogPrinter printer(output_, notice_output_, {.main_rank = -1, .json = true});
  printer.take(chunk(1, 0, 0, "a\nb\xff \"c\"\n"));
  printer.take(chunk(2, 3, 0, "d"));
  printer.finish();
  EXPECT_EQ(out_.text(), R"({"attempt":1,"job":0,"line":"a","rank":0})"
                         "\n"
                         "{\"attempt\":1,\"job\":0,\"line\":\"b\xef\xbf\xbd \\\"c\\\"\",\"rank\":0}"
                         "\n"
                         R"({"attempt":2,"job":0,"line":"d","rank":3})"
                         "\n");
}

TEST_F(LogPrinterTest, LinesAreJoinedAcrossChunksAndTheLastLineIsPrintedAtTheEnd) {
  LogPrinter printer(output_, notice_output_, options());
  printer.take(chunk(1, 0, 0, "be"));
  printer.take(chunk(1, 0, 2, "gin\nen"));
  printer.finish();
  EXPECT_EQ(out_.text(), "begin\nen\n");
}

TEST_F(LogPrinterTest, ARestartedStreamRepeatsNothing) {
  LogPrinter printer(output_, notice_output_, options());
  printer.take(chunk(1, 0, 0, "one\ntwo\n"));
  printer.take(chunk(1, 0, 0, "one\ntwo\nthree\n"));
  printer.take(chunk(1, 0, 4, "two\n"));
  printer.take(chunk(2, 0, 0, "again\n"));
  printer.finish();
  EXPECT_EQ(out_.text(), "one\ntwo\nthree\nagain\n");
}

TEST_F(LogPrinterTest, ALineWithoutEndIsCut) {
  LogPrinter printer(output_, notice_output_, options());
  const std::string part(40'000, 'x');
  printer.take(chunk(1, 0, 0, part));
  printer.take(chunk(1, 0, part.size(), part));
  printer.finish();
  EXPECT_EQ(out_.text().size(), 80'002U) << "each part of at most 64 KiB is a line";
}

TEST_F(LogPrinterTest, ControlCharactersOfARankAreEscapedOnATerminal) {
  const PseudoTerminal terminal(80);
  Output screen(terminal.fd());
  LogPrinter printer(screen, notice_output_, {});
  printer.take(chunk(1, 0, 0, "a\tb \x1b[2J\n"));
  printer.take(chunk(1, 1, 0, "to a file \x1b[2J\n"));
  printer.finish();
  EXPECT_EQ(terminal.text(), "a\tb \\x1b[2J\n");
  EXPECT_EQ(notices_.text(), "[rank 1] to a file \x1b[2J\n");
}

TEST_F(LogPrinterTest, ColoursSurviveOnATerminalAndNothingElseDoes) {
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  const PseudoTerminal terminal(80);
  Output screen(terminal.fd());
  LogPrinter printer(screen, notice_output_, {});
  printer.take(chunk(1, 0, 0, "\x1b[1;32mgreen\x1b[0m \x1b]0;title\x07 \x1b[2J \x1b[6n\n"));
  printer.finish();
  EXPECT_EQ(terminal.text(),
            "\x1b[1;32mgreen\x1b[0m \\x1b]0;title\\x07 \\x1b[2J \\x1b[6n\x1b[0m\n");
}

TEST_F(LogPrinterTest, JsonHasNoColours) {
  LogPrinter printer(output_, notice_output_, {.main_rank = -1, .json = true});
  printer.take(chunk(1, 0, 0, "\x1b[31mred\x1b[0m\r\x1b[32m100%\x1b[0m\n"));
  printer.finish();
  EXPECT_EQ(out_.text(), "{\"attempt\":1,\"job\":0,\"line\":\"100%\",\"rank\":0}\n");
}

TEST_F(LogPrinterTest, ALogKeepsTheLastStateOfALine) {
  LogPrinter printer(output_, notice_output_, options(-1));
  printer.take(chunk(1, 0, 0, "start\r\n\r 10%\r 20%\r 30%"));
  printer.take(chunk(1, 0, 23, "\r100%\ndone\n\r 1 left"));
  printer.finish();
  EXPECT_EQ(out_.text(), "[rank 0] start\n[rank 0] 100%\n[rank 0] done\n[rank 0]  1 left\n");
  EXPECT_EQ(notices_.text(),
            "muster: 3 earlier states of lines with carriage returns (progress bars) were "
            "replaced; the ranks' log files have them\n");
}

// A bar that never ends its line: its newest state is shown at most once a second and rank.
TEST_F(LogPrinterTest, ALiveOutputShowsTheNewestStateOnceASecond) {
  LogPrinter printer(output_, notice_output_, {.main_rank = 0, .live = true});
  std::string bar;
  uint64_t bytes = 0;
  const auto began = monotonic_now();
  for (int step = 0; step < 125; ++step) {
    const std::string state = "\r " + std::to_string(step) + "/125";
    for (int32_t rank = 0; rank < 2; ++rank) printer.take(chunk(1, rank, bytes, state));
    bytes += state.size();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const auto seconds = to_seconds(monotonic_now() - began);
  const std::string live = out_.text();
  EXPECT_GE(std::count(live.begin(), live.end(), '\n'), 1) << live;
  EXPECT_LE(std::count(live.begin(), live.end(), '\n'), static_cast<int>(seconds) + 1) << live;
  EXPECT_THAT(live, testing::StartsWith(" 0/125\n "));
  printer.finish();
  EXPECT_THAT(out_.text(), testing::EndsWith(" 124/125\n"));
  EXPECT_THAT(notices_.text(), testing::HasSubstr("[rank 1]  124/125\n"));
}

// The prompt of a debugger has no newline.
TEST_F(LogPrinterTest, ALiveOutputShowsAQuestion) {
  LogPrinter printer(output_, notice_output_, {.main_rank = 0, .live = true});
  printer.take(chunk(1, 0, 0, "(Pdb) "));
  for (int i = 0; i < 500 && out_.text().empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(out_.text(), "(Pdb) ");
  printer.take(chunk(1, 0, 6, "42\n"));
  printer.finish();
  EXPECT_EQ(out_.text(), "(Pdb) 42\n") << "the rest of the line follows it";
  EXPECT_EQ(notices_.text(), "");
}

TEST_F(LogPrinterTest, AnOpenLineIsClosedBeforeANotice) {
  LogPrinter printer(output_, output_, {.main_rank = 0, .live = true});
  printer.take(chunk(1, 0, 0, "\r 10%"));
  printer.notice("RUNNING");
  printer.take(chunk(1, 0, 5, "\r 20%\n"));
  printer.finish();
  EXPECT_THAT(out_.text(), testing::StartsWith(" 10%\nmuster: RUNNING\n 20%\n"));
}

// `muster run … > file`: what goes to the terminal does not change the file.
TEST_F(LogPrinterTest, AnOpenLineOfAFileIsNotClosedByAnotherOutput) {
  LogPrinter printer(output_, notice_output_, {.main_rank = 0, .live = true});
  printer.take(chunk(1, 0, 0, "abc"));
  for (int i = 0; i < 500 && out_.text().empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_EQ(out_.text(), "abc");
  printer.notice("RUNNING");
  printer.take(chunk(1, 1, 0, "line of rank 1\n"));
  printer.take(chunk(1, 0, 3, "def\n"));
  printer.finish();
  EXPECT_EQ(out_.text(), "abcdef\n");
  EXPECT_EQ(notices_.text(), "muster: RUNNING\n[rank 1] line of rank 1\n");
}

// Two descriptors of one file, as of `> file 2>&1`.
TEST_F(LogPrinterTest, AnOpenLineIsClosedBeforeANoticeInTheSameFile) {
  const int same = dup(out_.fd());
  {
    Output notices(same);
    LogPrinter printer(output_, notices, {.main_rank = 0, .live = true});
    printer.take(chunk(1, 0, 0, "\r 10%"));
    printer.notice("RUNNING");
    printer.finish();
  }
  EXPECT_EQ(out_.text(), " 10%\nmuster: RUNNING\n");
  close(same);
}

// Each dot comes before the line has stood still.
TEST_F(LogPrinterTest, ALiveOutputShowsARowThatGrowsAllTheTime) {
  for (const char* piece : {".", "\b/", "x\x1b[1G"}) {
    const CapturedFd shown;
    Output output(shown.fd());
    LogPrinter printer(output, notice_output_, {.main_rank = 0, .live = true});
    uint64_t bytes = 0;
    for (int i = 0; i < 15; ++i) {
      printer.take(chunk(1, 0, bytes, piece));
      bytes += std::string_view(piece).size();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT_NE(shown.text(), "") << piece;
    printer.finish();
  }
}

TEST_F(LogPrinterTest, AClosedReaderIsDetected) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  {
    Output output(full);
    LogPrinter printer(output, notice_output_, options());
    printer.take(chunk(1, 0, 0, "line\n"));
    printer.finish();
    EXPECT_FALSE(printer.take(chunk(1, 0, 5, "line\n")));
  }
  close(full);
}

// `muster run | less`: more output than the pipe and the printer hold, and no reader.
TEST_F(LogPrinterTest, AStalledReaderBlocksOnlyTheRanksOutput) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  {
    Output output(ends[1]);
    LogPrinter printer(output, notice_output_, options());
    const std::string line(1 << 20, 'x');
    std::thread stream([&] {
      for (uint64_t taken = 0; printer.take(chunk(1, 0, taken, line)); taken += line.size()) {
      }
    });
    pollfd room{.fd = ends[1], .events = POLLOUT, .revents = 0};
    while (poll(&room, 1, 0) > 0) std::this_thread::yield();
    printer.notice("never waits");
    EXPECT_TRUE(printer.is_behind());
    printer.give_up();
    stream.join();
    printer.finish();
    EXPECT_EQ(notices_.text(), "muster: never waits\n") << "news outlast what is given up";
  }
  close(ends[0]);
  close(ends[1]);
}

// A person can follow four lines a second; the first ones are shown at any pace.
TEST(StepThinning, ShowsAllSlowStepsAndSomeFastOnes) {
  const Instant start = Instant() + std::chrono::hours(1);
  StepThinning slow;
  for (int step = 0; step < 200; ++step)
    EXPECT_TRUE(slow.shows(start + step * std::chrono::milliseconds(250))) << step;
  StepThinning fast;
  int shown = 0;
  for (int step = 0; step < 10'000; ++step)
    shown += fast.shows(start + step * std::chrono::milliseconds(1)) ? 1 : 0;
  EXPECT_EQ(shown, 20 + 4 * 10 - 1) << "10 s";
}

}  // namespace
}  // namespace muster::cli
