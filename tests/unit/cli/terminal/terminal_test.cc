#include "cli/terminal/terminal.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/unit/cli/terminal/captured_fd.h"

namespace muster::cli {
namespace {

TEST(FormatDuration, PicksTwoUnits) {
  EXPECT_EQ(format_duration(0), "0s");
  EXPECT_EQ(format_duration(59.4), "59s");
  EXPECT_EQ(format_duration(187), "3m 07s");
  EXPECT_EQ(format_duration(7500), "2h 05m");
  EXPECT_EQ(format_duration(4 * 86400 + 3 * 3600), "4d 03h");
  EXPECT_EQ(format_duration(-1), "-");
  EXPECT_EQ(format_duration(std::nan("")), "-");
  EXPECT_EQ(format_duration(1e300), "-");
}

TEST(FormatCount, KeepsThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(12'345), "12.3k");
  EXPECT_EQ(format_count(4'404'000), "4.40M");
  EXPECT_EQ(format_count(999'950), "1.00M");
  EXPECT_EQ(format_count(INFINITY), "-");
}

TEST(Shorten, CutsBetweenCharacters) {
  EXPECT_EQ(shorten("tokenize", 8), "tokenize");
  EXPECT_EQ(shorten("tokenize", 7), "tokeni…");
  EXPECT_EQ(shorten("größer", 4), "grö…");
  EXPECT_EQ(shorten("x", 0), "");
  EXPECT_EQ(columns("größer…"), 7U);
}

TEST(FormatTable, AlignsByCharactersAndLeavesNoTrailingBlanks) {
  EXPECT_EQ(format_table({{"A", "B", "C"}, {"…long", "x", "y"}, {"z", "", "w"}}),
            "A      B  C\n…long  x  y\nz         w\n");
}

TEST(Colour, IsOnlyForTerminals) {
  const CapturedFd file;
  EXPECT_FALSE(takes_colour(file.fd()));
  EXPECT_EQ(coloured(file.fd(), Colour::kRed, "text"), "text");
  EXPECT_EQ(terminal_width(file.fd()), 80);
}

TEST(Fail, BadInputIsTwoAndTheRestIsOne) {
  EXPECT_EQ(fail(absl::InvalidArgumentError("expected in this test's output")), 2);
  EXPECT_EQ(fail(absl::NotFoundError("expected in this test's output")), 2);
  EXPECT_EQ(fail(absl::UnavailableError("expected in this test's output")), 1);
  EXPECT_EQ(fail(absl::InternalError("expected in this test's output")), 1);
}

}  // namespace
}  // namespace muster::cli
