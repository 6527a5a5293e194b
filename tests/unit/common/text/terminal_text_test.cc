#include "common/text/terminal_text.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/text/escape.h"

namespace muster {
namespace {

using std::string_literals::operator""s;

struct OutputCase {
  const char* name;
  std::string output;
  std::vector<std::string> lines;
  uint64_t replaced;  // states that were left out
};

const OutputCase kOutputCases[] = {
    {"tqdm", "\r  0%|    |\r 50%|##  |\r100%|####|\n", {"100%|####|"}, 2},
    {"tqdm that erases its bar", "\r 50%|##  |\r          \rdone\n", {"done"}, 1},
    {"wget", "a.bin  10%[>  ] 1M\ra.bin 100%[===>] 9M\n", {"a.bin 100%[===>] 9M"}, 1},
    {"rich", "\r\x1b[2K10%\r\x1b[2K20%\x1b[?25h\r\n", {"\x1b[2K20%\x1b[?25h"}, 1},
    {"Windows' line ends", "one\r\ntwo\r\n", {"one", "two"}, 0},
    {"doubled carriage returns", "one\r\r\ntwo\n", {"one", "two"}, 0},
    {"an error behind a bar", "\r 50%|# |Traceback:\n  x\n", {" 50%|# |Traceback:", "  x"}, 0},
    {"no end", "\r10%\r20%", {"20%"}, 1},
    {"a blank line", "\n  \n", {"", "  "}, 0},
    {"only returns", "\r\r\r\n", {""}, 0},
    {"nothing", "", {}, 0},
    {"a spinner", "/\b-\b\\\b|\n", {"|"}, 3},
    {"a spinner that ends in its place", "/\b-\b", {"-"}, 1},
    {"a spinner behind text", "Loading /\b-\b⠙\b\bd⠹\n", {"Loadingd⠹"}, 3},
    {"a number that is written over", " 10%\b\b\b\b 20%", {" 20%"}, 1},
    {"more backspaces than characters", "ab\b\b\b\bcd\n", {"cd"}, 1},
    {"a spinner in colour", "\x1b[31m/\x1b[0m\b\x1b[31m-\x1b[0m\n", {"\x1b[31m-\x1b[0m"}, 1},
    {"the first column", "GG 10%\x1b[1GG 20%\x1b[GG 30%\x1b[0GG 40%\n", {"G 40%"}, 3},
    {"another column", "a\x1b[20Gb\x1b[11G[G\n", {"a\x1b[20Gb\x1b[11G[G"}, 0},
    {"NUL and invalid bytes", "a\0b\rc\xff\n"s, {"c\xff"}, 1},
    {"tqdm's nested bars",
     "\rout 0\n\rin 0\x1b[A\n\rin 1\x1b[A\rout 1\n\rin 2\x1b[A\rout 2\n\n",
     {"out 0", "out 2", "in 2\x1b[A"},
     3},
    {"rich's live rows",
     "A 0\nB 0\r\x1b[2K\x1b[1A\x1b[2KA 1\nB 1\r\x1b[2K\x1b[1A\x1b[2KA 2\nB 2\n",
     {"A 0", "\x1b[2KA 2", "B 2"},
     3},
    {"three rows, and down again",
     "a\nb\nc\x1b[2A\ra2\x1b[1B\rb2\x1b[B\rc2\nend\n",
     {"a", "b", "a2\x1b[1B", "b2\x1b[B", "c2", "end"},
     1},
    {"the previous line's start", "a\nb\x1b[Fa2\x1b[Eb2", {"a", "a2\x1b[E", "b2"}, 1},
    {"rows that are left behind", "a\nb\x1b[1Ac", {"a", "c", "b\x1b[1A"}, 0},
    {"more rows up than there are", "a\x1b[999Ab\nc\n", {"b", "c", "a\x1b[999A"}, 0},
    {"down from the last row", "a\x1b[Bb\n", {"a\x1b[Bb"}, 0},
    {"letters that are text", "A[A [1A B1A [12345A\n", {"A[A [1A B1A [12345A"}, 0},
};

std::vector<std::string> lines_of_output(LineStates& states, const std::string& output,
                                         size_t piece, size_t line_bytes_max) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < output.size(); at += piece)
    for (std::string& line : states.add(output.substr(at, piece), line_bytes_max))
      lines.push_back(std::move(line));
  for (std::string& last : states.finish()) lines.push_back(std::move(last));
  return lines;
}

// The parts of the output are those of any reader: whole, or byte by byte.
TEST(LineStates, KeepTheLastStateOfALine) {
  for (const OutputCase& one : kOutputCases) {
    for (const size_t piece : {size_t{1}, size_t{3}, size_t{1000}}) {
      LineStates states;
      EXPECT_EQ(lines_of_output(states, one.output, piece, 1000), one.lines) << one.name;
      EXPECT_EQ(states.account().replaced, one.replaced) << one.name;
    }
  }
}

// Returns the lines by another way: whole lines first, and of each its last state.
std::vector<std::string> expected_lines(const std::string& output) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < output.size();) {
    const size_t end = std::min(output.find('\n', at), output.size());
    lines.emplace_back(last_state(std::string_view(output).substr(at, end - at)));
    at = end + 1;
    if (end == output.size() && lines.back().empty()) lines.pop_back();
  }
  return lines;
}

// Random streams of bytes: nothing that was read is missing from the account, wherever the stream
// is cut into pieces.
TEST(LineStates, RandomBytesAreAccountedFor) {
  constexpr std::string_view kBytes =
      "ab %\r\r\n\x1b[2K\x1b[1mm\xc3\xa9\xff\0"
      "0;";
  std::mt19937 random(11);
  for (int i = 0; i < 3000; ++i) {
    std::string output;
    for (size_t bytes = random() % 200; bytes > 0; --bytes)
      output += kBytes[random() % kBytes.size()];
    LineStates states;
    const std::vector<std::string> lines = lines_of_output(states, output, 1 + random() % 60, 1000);
    const LineStates::OutputCounts& account = states.account();
    EXPECT_EQ(account.kept_bytes + account.replaced_bytes + account.ends, output.size());
    EXPECT_EQ(states.pending_bytes(), 0U);
    uint64_t kept = 0;
    for (const std::string& line : lines) {
      kept += line.size();
      EXPECT_EQ(line.find_first_of("\r\n"), std::string::npos);
    }
    EXPECT_EQ(kept, account.kept_bytes);
    EXPECT_EQ(lines, expected_lines(output)) << escape_controls(output, Layout::kOneLine);
  }
}

TEST(LineStates, BackspacesAndColumnsAreAccountedFor) {
  constexpr std::string_view kBytes = "ab \b\b\b\r\n\x1b\x1b[[1GGm\xc3\xa9";
  constexpr std::string_view kSequences[] = {"\x1b[A", "\x1b[2A", "\x1b[B", "\x1b[1F", "\x1b[E"};
  std::mt19937 random(17);
  for (int i = 0; i < 3000; ++i) {
    std::string output;
    for (size_t bytes = random() % 200; bytes > 0; --bytes) {
      if (random() % 8 == 0) output += kSequences[random() % std::size(kSequences)];
      output += kBytes[random() % kBytes.size()];
    }
    LineStates states, whole;
    const auto lines = lines_of_output(states, output, 1 + random() % 60, 1000);
    EXPECT_EQ(lines, lines_of_output(whole, output, output.size() + 1, 1000))
        << escape_controls(output, Layout::kOneLine);
    const LineStates::OutputCounts& account = states.account();
    EXPECT_EQ(account.kept_bytes + account.replaced_bytes + account.ends, output.size());
  }
}

TEST(LineStates, MemoryIsBounded) {
  constexpr size_t kMax = 64;
  std::mt19937 random(5);
  LineStates states;
  uint64_t bytes = 0;
  for (int i = 0; i < 500; ++i) {
    const std::string piece(random() % 200, random() % 3 == 0 ? '\r' : 'x');
    bytes += piece.size();
    (void)states.add(piece, kMax);
    EXPECT_LE(states.pending_bytes(), 2 * kMax);
  }
  (void)states.finish();
  EXPECT_EQ(states.account().kept_bytes + states.account().replaced_bytes + states.account().ends,
            bytes);
}

TEST(LineStates, MemoryOfRowsIsBounded) {
  constexpr size_t kMax = 64;
  constexpr size_t kRows = 17;
  std::mt19937 random(6);
  LineStates states;
  uint64_t bytes = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string piece =
        random() % 2 == 0 ? "\x1b[" + std::to_string(random() % 1000) + "A" : std::string(50, 'x');
    bytes += piece.size();
    (void)states.add(piece, kMax);
    EXPECT_LE(states.pending_bytes(), (kRows + 1) * kMax);
  }
  EXPECT_LE(states.finish().size(), kRows);
  EXPECT_EQ(states.account().kept_bytes + states.account().replaced_bytes + states.account().ends,
            bytes);
}

struct EscapeCase {
  const char* name;
  std::string text;
  std::string plain;     // without_escapes
  std::string terminal;  // for_terminal with colours
};

const EscapeCase kEscapeCases[] = {
    {"colour", "\x1b[1;31mred\x1b[0m", "red", "\x1b[1;31mred\x1b[0m\x1b[0m"},
    {"24-bit colour", "\x1b[38;2;1;2;3mx", "x", "\x1b[38;2;1;2;3mx\x1b[0m"},
    {"clear screen", "a\x1b[2Jb", "ab", "a\\x1b[2Jb"},
    {"title",
     "a\x1b]0;title\x07"
     "b",
     "ab",
     "a\\x1b]0;title\\x07"
     "b"},
    {"title with ST", "a\x1b]0;t\x1b\\b", "ab", "a\\x1b]0;t\\x1b\\b"},
    {"a link", "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link",
     "\\x1b]8;;http://x\\x1b\\link\\x1b]8;;\\x1b\\"},
    {"a question to the terminal", "\x1b[6n", "", "\\x1b[6n"},
    {"clipboard", "\x1b]52;c;eA==\x07", "", "\\x1b]52;c;eA==\\x07"},
    {"reset",
     "\x1b"
     "c",
     "", "\\x1bc"},
    {"character set", "\x1b(B", "", "\\x1b(B"},
    {"bar", "\x1b[2K\x1b[1A 10%\x1b[K\x1b[?25l", " 10%", " 10%"},
    {"other controls",
     "a\x08\x07"
     "b\tc",
     "a\x08\x07"
     "b\tc",
     "a\\x08\\x07"
     "b\tc"},
    {"C1",
     "\xc2\x9b"
     "2J",
     "\xc2\x9b"
     "2J",
     "\\x9b2J"},
    {"an escape at the end", "a\x1b", "a", "a\\x1b"},
    {"a title without its end", "\x1b]0;text stays", "0;text stays", "\\x1b]0;text stays"},
    {"plain", "plain é", "plain é", "plain é"},
};

TEST(TerminalText, ColoursSurviveAndOtherSequencesDoNot) {
  for (const EscapeCase& one : kEscapeCases) {
    EXPECT_EQ(without_escapes(one.text), one.plain) << one.name;
    EXPECT_EQ(for_terminal(one.text, true), one.terminal) << one.name;
    const std::string plain = for_terminal(one.text, false);
    EXPECT_EQ(plain.find('\x1b'), std::string::npos) << one.name << ": expected no colours";
  }
}

// Whatever a rank writes, a terminal gets no sequence but colours, and no control character.
TEST(TerminalText, RandomBytesAreHarmless) {
  constexpr std::string_view kBytes = "\x1b\x1b[]();?m0129KJAH\\\x07\x9b\xc2\xff\r\t ab\x90X^_P";
  std::mt19937 random(13);
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (size_t bytes = random() % 60; bytes > 0; --bytes) text += kBytes[random() % kBytes.size()];
    std::string left = for_terminal(text, true);
    for (size_t at = left.find('\x1b'); at != std::string::npos; at = left.find('\x1b', at)) {
      const size_t end = left.find_first_not_of("0123456789;:", at + 2);
      ASSERT_TRUE(left[at + 1] == '[' && end != std::string::npos && left[end] == 'm')
          << escape_controls(text, Layout::kOneLine);
      left.erase(at, end + 1 - at);
    }
    EXPECT_EQ(escape_controls(left), left) << escape_controls(text, Layout::kOneLine);
  }
}

TEST(TerminalText, APrintableEndIsTheEnd) {
  EXPECT_EQ(printable_end("short", 10), "short");
  EXPECT_EQ(printable_end("0123456789", 10), "0123456789");
  EXPECT_EQ(printable_end("01234567890", 10), "…4567890");
  EXPECT_EQ(printable_end("x\x1b[31m end\x1b[0m", 100), "x end");
  EXPECT_EQ(printable_end("aaaaaaaaaaaa世界", 10), "…a世界");
  EXPECT_EQ(printable_end("aaaaaaaaaaaa世界", 8), "…界") << "no half of a character";
  EXPECT_TRUE(is_valid_utf8(printable_end(std::string(100, '\xE4'), 30)));
  EXPECT_LE(printable_end(std::string(100, '\x01'), 30).size(), 30U);
}

}  // namespace
}  // namespace muster
