// The account of each input: what was read, repaired, skipped, cut, empty or left out.
#include <gmock/gmock.h>

#include <map>
#include <random>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/text/text_files.h"
#include "tests/unit/trainer_core/text/tokenize_fixture.h"

namespace muster::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kMark[] = "\xEF\xBB\xBF";

class TokenizeReportTest : public TokenizeFixture {
 protected:
  TokenizeOptions options_for(const std::vector<std::string>& names, const std::string& out) {
    TokenizeOptions run = options(out);
    run.inputs.clear();
    for (const std::string& name : names) run.inputs.push_back(folder_->file(name));
    return run;
  }
  std::string error(const std::string& name, const std::string& bytes) {
    write_file(folder_->file(name), bytes);
    const auto report = tokenize_files(options_for({name}, "refused"));
    return report.ok() ? "" : std::string(report.status().message());
  }
};

TEST_F(TokenizeReportTest, EachInputHasItsAccount) {
  write_file(folder_->file("a.txt"), "And it came\nto pass\n\n");
  write_file(folder_->file("b.jsonl"),
             "{\"text\": \"And it\"}\n{\"text\": \"\"}\nnonsense\n{\"text\": \" \\n\"}\n"
             "{\"text\": \"caf\\ud800\"}\n");
  write_file(folder_->file("c.txt.gz"), gzip("in the year\n"));
  write_file(folder_->file("d.txt"), "");
  TokenizeOptions run = options_for({"a.txt", "b.jsonl", "c.txt.gz", "d.txt"}, "accounts");
  // Lone surrogates are a flaw, too, where nothing is repaired.
  run.encode.bad_documents = BadDocuments::kSkip;
  const auto report = tokenize_files(run);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->inputs.size(), 4U);
  const InputReport& a = report->inputs[0];
  EXPECT_EQ(a.read.documents, 2U);
  EXPECT_EQ(a.read.file_bytes, a.bytes);
  EXPECT_EQ(a.read.counts.text_bytes, 18U);
  EXPECT_EQ(a.read.counts.empty, 0U) << "blank lines are no documents";
  const InputReport& b = report->inputs[1];
  EXPECT_EQ(b.path, folder_->file("b.jsonl"));
  EXPECT_EQ(b.read.documents, 1U);
  EXPECT_EQ(b.read.counts.empty, 2U);
  EXPECT_EQ(b.read.counts.skipped, 2U);
  EXPECT_THAT(b.read.counts.skipped_examples,
              ElementsAre(HasSubstr("b.jsonl:3 (byte 32) is not JSON"),
                          HasSubstr("b.jsonl:5 (byte 57) is no valid UTF-8")));
  EXPECT_THAT(b.read.counts.empty_examples,
              ElementsAre(HasSubstr("b.jsonl:2 (byte 19)"), HasSubstr("b.jsonl:4 (byte 41)")));
  EXPECT_EQ(report->inputs[2].read.documents, 1U);
  EXPECT_EQ(report->inputs[2].read.file_bytes, report->inputs[2].bytes);
  EXPECT_EQ(report->inputs[3].read.documents, 0U);
  uint64_t tokens = 0;
  for (const InputReport& input : report->inputs) tokens += input.read.tokens;
  EXPECT_EQ(tokens, report->index.tokens);
  EXPECT_EQ(report->tokenizer, "sentencepiece");
  EXPECT_EQ(report->tokenizer_file, folder_->file("t.model"));
}

struct AccountCase {
  const char* file;
  std::string content;
  uint64_t documents, empty, skipped, repaired, nuls;
};

TEST_F(TokenizeReportTest, EachKindOfInputIsCounted) {
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += "in the year\n";
  const AccountCase cases[] = {
      {"paragraphs.txt", "And it came\nto pass\n\n", 2, 0, 0, 0, 0},
      {"latin.txt", lines + "caf\xE9\n", 41, 0, 0, 1, 0},
      {"nul.jsonl", "{\"text\": \"a\\u0000b\"}\n", 1, 0, 0, 0, 1},
      {"packed.txt.gz", gzip("in the year\n"), 1, 0, 0, 0, 0},
      {"lines.jsonl", "{\"text\": \"And it\"}\n{\"text\": \" \\n\"}\n", 1, 1, 0, 0, 0},
      {"damaged.jsonl", "{\"text\": \"And it\"}\nnonsense\n{\"text\": \"to pass\"}\n", 2, 0, 1, 0,
       0},
      {"fields.jsonl", "{\"text\": \"And it\"}\n{\"title\": \"And it\"}\n", 1, 0, 1, 0, 0},
  };
  int number = 0;
  for (const AccountCase& one : cases) {
    write_file(folder_->file(one.file), one.content);
    TokenizeOptions run = options_for({one.file}, "account-" + std::to_string(number++));
    run.encode.bad_documents = one.skipped > 0 ? BadDocuments::kSkip : BadDocuments::kRepair;
    const auto report = tokenize_files(run);
    ASSERT_TRUE(report.ok()) << one.file << ": " << report.status();
    ASSERT_EQ(report->inputs.size(), 1U);
    const InputCounts& read = report->inputs[0].read;
    EXPECT_EQ(read.documents, one.documents) << one.file;
    EXPECT_EQ(read.counts.empty, one.empty) << one.file;
    EXPECT_EQ(read.counts.skipped, one.skipped) << one.file;
    EXPECT_EQ(read.counts.repaired, one.repaired) << one.file;
    EXPECT_EQ(read.counts.nuls, one.nuls) << one.file;
    EXPECT_EQ(read.file_bytes, one.content.size()) << one.file;
    EXPECT_EQ(read.tokens, report->index.tokens) << one.file;
  }
}

TEST_F(TokenizeReportTest, AResumedRunHasTheSameAccount) {
  std::vector<std::string> names;
  for (int i = 0; i < 4; ++i) {
    names.push_back("part-" + std::to_string(i) + ".txt");
    write_file(folder_->file(names.back()), corpus(4000 + i) + "caf\xE9\n");
  }
  TokenizeOptions run = options_for(names, "whole-account");
  run.shard_tokens = 20'000;
  const auto whole = tokenize_files(run);
  ASSERT_TRUE(whole.ok()) << whole.status();
  run.output_directory = folder_->file("resumed-account");
  std::atomic<bool> stop = false;
  run.stop = &stop;
  ASSERT_FALSE(tokenize_files(run, [&](const TokenizeProgress& progress) {
                 stop = progress.done > progress.total / 2;
               }).ok());
  stop = false;
  const auto resumed = tokenize_files(run);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_GT(resumed->reused_shards, 0U);
  for (size_t i = 0; i < names.size(); ++i) {
    const InputCounts& a = whole->inputs[i].read;
    const InputCounts& b = resumed->inputs[i].read;
    EXPECT_EQ(a.documents, b.documents) << i;
    EXPECT_EQ(a.tokens, b.tokens) << i;
    EXPECT_EQ(a.file_bytes, b.file_bytes) << i;
    EXPECT_EQ(a.counts.repaired, 1U);
    EXPECT_EQ(b.counts.repaired_examples, a.counts.repaired_examples);
  }
}

// Files that were joined have marks at the beginning of later lines.
TEST_F(TokenizeReportTest, ByteOrderMarksWithinFilesAreLeftOutAndCounted) {
  const std::string line = "And it came to pass\n";
  const std::string json = "{\"text\": \"And it came to pass\"}\n";
  write_file(folder_->file("plain.txt"), line + line + line);
  write_file(folder_->file("marks.txt"), kMark + line + kMark + line + kMark + (kMark + line));
  write_file(folder_->file("marks.jsonl"), kMark + json + kMark + json + json);
  write_file(folder_->file("crlf.jsonl"),
             "{\"text\": \"And it came to pass\"}\r\n\r\n" + json + json);
  for (const auto& [name, marks] :
       {std::pair{"plain.txt", 0}, {"marks.txt", 3}, {"marks.jsonl", 1}, {"crlf.jsonl", 0}}) {
    const auto report = tokenize_files(options_for({name}, "marks"));
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->index.documents, 3U) << name;
    EXPECT_EQ(report->index.bytes, 3 * (line.size() - 1)) << name;
    EXPECT_EQ(report->counts.marks, static_cast<uint64_t>(marks)) << name;
    EXPECT_EQ(report->counts.marks_examples.empty(), marks == 0);
  }
}

TEST_F(TokenizeReportTest, JsonThatIsNoLinesIsNamed) {
  struct Case {
    const char* bytes;
    const char* expected;
  };
  const Case cases[] = {
      {"[{\"text\": \"a\"},\n {\"text\": \"b\"}]\n",
       "is a JSON array, not JSON lines; jq -c '.[]'"},
      {"\n \xEF\xBB\xBF[\n  {\"text\": \"a\"}\n]", "is a JSON array, not JSON lines; jq -c '.[]'"},
      {"[]", "is a JSON array"},
      {"{\n  \"text\": \"a\"\n}\n", "has JSON over several lines, not JSON lines; jq -c . FILE"},
      {"{ \r\n  \"text\": \"a\"\r\n}", "has JSON over several lines"},
      {"{\"text\": \"a}{\"}{\"text\": \"b\"}\n", "has several objects on a line; jq -c . FILE"},
      {"{\"text\": \"\\\"\"} {\"text\": [{}]}\n", "has several objects on a line"},
      {"{\"text\": \"a\"}, {\"text\": \"b\"}\n", "has several objects on a line"},
      {"{\"text\": \"a\"}{\n", "has several objects on a line"},
      {"{\"text\": \"a\"}}\n", "is not JSON"},
      {"{\"text\": \"a\"}\r{\"text\": \"b\"}\r", "has lines that end in CR alone (\\r)"},
      {"{\"data\": [{\"text\": \"a\"}]}\n", "has no field \"text\"; it has \"data\""},
  };
  for (const Case& c : cases)
    EXPECT_THAT(error("a.json", c.bytes), HasSubstr(c.expected)) << c.bytes;
  write_file(folder_->file("array.json.gz"), gzip("[{\"text\": \"a\"}]"));
  EXPECT_THAT(
      std::string(tokenize_files(options_for({"array.json.gz"}, "refused")).status().message()),
      HasSubstr("is a JSON array"));
}

TEST_F(TokenizeReportTest, ArchivesWithinCompressionAreNamed) {
  std::string tar(1024, '\0');
  tar.replace(0, 5, "a.txt").replace(257, 8, "ustar  ").replace(512, 6, "And it");
  EXPECT_THAT(error("x.tar", tar), HasSubstr("x.tar is a tar archive"));
  EXPECT_THAT(error("x.tar.gz", gzip(tar)), HasSubstr("x.tar.gz is a tar archive, which is not"));
  EXPECT_THAT(error("x.tgz", gzip(tar)), HasSubstr("is a tar archive"));
  EXPECT_THAT(error("x.tar.zst", zstd(tar)), HasSubstr("is a tar archive"));
  EXPECT_THAT(error("x.jsonl.gz", zstd("PK\3\4")), HasSubstr("is compressed: zip is not read"));
  EXPECT_THAT(error("x.txt.gz", gzip(gzip("And it"))), HasSubstr("x.txt.gz is compressed twice"));
  EXPECT_THAT(error("x.jsonl.zst", zstd(gzip("{}"))), HasSubstr("is compressed twice"));
  EXPECT_THAT(error("x.txt.gz", gzip("%PDF-1.7")), HasSubstr("is a PDF document"));
}

TEST_F(TokenizeReportTest, LineEndsOfOldMacsAreNamed) {
  for (const std::string bytes : {"And it\rcame to pass", "And it\rcame\r", "\rAnd it"}) {
    EXPECT_THAT(error("mac.txt", bytes),
                HasSubstr("mac.txt has lines that end in CR alone (\\r), as on old Macs; tr"))
        << bytes;
  }
  std::string many;
  for (int i = 0; i < 40'000; ++i) many += "And it came\r";
  EXPECT_THAT(error("mac.txt", many), HasSubstr("end in CR alone"));
  for (const std::string bytes : {"And it\r\ncame\r\n", "And\rit\ncame", "And it\r", "And it"})
    EXPECT_EQ(error("dos.txt", bytes), "") << bytes;
  // A progress bar's lone CR in a long line.
  EXPECT_EQ(error("long.txt", std::string(20, 'x') + "\r" + std::string(400'000, 'x') + "\n"), "");
}

// Texts of blanks and zero-width characters show nothing, as one of spaces.
TEST_F(TokenizeReportTest, InvisibleTextsAreEmpty) {
  const std::string kInvisible[] = {"\\u00a0", "\\u3000\\u3000", "\\u200b", "\\ufeff", "\\u2028 ",
                                    "\\u0085", "\\u2060\\u200d", "\\u202f", "\\u1680"};
  std::string bytes;
  for (const std::string& text : kInvisible) bytes += "{\"text\": \"" + text + "\"}\n";
  bytes += "{\"text\": \"\\u00a0a\"}\n{\"text\": \"\\u2010\"}\n{\"text\": \"\\u00e9\"}\n";
  write_file(folder_->file("invisible.jsonl"), bytes);
  const auto report = tokenize_files(options_for({"invisible.jsonl"}, "invisible"));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->counts.empty, std::size(kInvisible));
  EXPECT_EQ(report->index.documents, 3U);
}

TEST_F(TokenizeReportTest, NulBytesAreNamed) {
  EXPECT_THAT(error("nul.txt", std::string("And\0it\n", 7)), HasSubstr("NUL byte at offset 3"));
  // Behind the beginning of a file, such as after a crash of its writer.
  write_file(folder_->file("late.txt"), corpus(6000) + std::string("And\0it\n", 7));
  const auto report = tokenize_files(options_for({"late.txt"}, "late"));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->counts.nuls, 1U);
  EXPECT_EQ(report->counts.repaired, 0U);
  // In every format, and beside invalid UTF-8.
  write_file(
      folder_->file("nul.jsonl"),
      "{\"text\": \"And\\u0000it\"}\n{\"text\": \"came\"}\n{\"text\": \"it\\u0000\\ud800\"}\n");
  write_file(folder_->file("nul.tfrecord"), tfrecord(example(std::string("And\0it", 6))));
  const auto formats = tokenize_files(options_for({"nul.jsonl", "nul.tfrecord"}, "formats"));
  ASSERT_TRUE(formats.ok()) << formats.status();
  EXPECT_EQ(formats->inputs[0].read.counts.nuls, 2U);
  EXPECT_EQ(formats->inputs[0].read.counts.repaired, 1U);
  EXPECT_THAT(formats->inputs[0].read.counts.nuls_examples,
              ElementsAre(HasSubstr("nul.jsonl:1 (byte 0)"), HasSubstr("nul.jsonl:3 (byte ")));
  EXPECT_EQ(formats->inputs[1].read.counts.nuls, 1U);
  EXPECT_EQ(formats->counts.nuls, 3U);
  EXPECT_EQ(formats->index.documents, 4U);
  for (const char* name : {"late.txt", "nul.jsonl", "nul.tfrecord"}) {
    TokenizeOptions strict = options_for({name}, "late");
    strict.encode.bad_documents = BadDocuments::kStop;
    EXPECT_THAT(std::string(tokenize_files(strict).status().message()),
                HasSubstr("has NUL characters"))
        << name;
  }
}

// Whatever a file of lines has, each line is a document, or in the account.
TEST_F(TokenizeReportTest, RandomLinesAreAllAccountedFor) {
  std::mt19937 random(10);
  const std::string kLines[] = {"{\"text\": \"And it came\"}",
                                "{\"text\": \"\"}",
                                "{\"text\": null}",
                                "nonsense",
                                "",
                                "  ",
                                "{\"text\": \"caf\xE9\"}",
                                "{\"text\": \"a\", \"x\": NaN}",
                                "{\"txt\": 1e999}",
                                "[1]",
                                "{\"text\": [\"a\"]}",
                                "\xEF\xBB\xBF{\"text\": \"b\"}"};
  int stopped = 0;
  for (int round = 0; round < 40; ++round) {
    std::string bytes = "{\"text\": \"first\"}\n";
    size_t lines = 1;
    for (int i = 0; i < 30; ++i) {
      const std::string& line = kLines[random() % std::size(kLines)];
      bytes += line + (random() % 3 == 0 ? "\r\n" : "\n");
      if (line.find_first_not_of(' ') != std::string::npos) ++lines;
    }
    write_file(folder_->file("random.jsonl"), bytes);
    TokenizeOptions run = options_for({"random.jsonl"}, "random");
    run.encode.bad_documents = round % 2 == 0 ? BadDocuments::kSkip : BadDocuments::kRepair;
    const auto report = tokenize_files(run);
    if (run.encode.bad_documents == BadDocuments::kRepair && !report.ok()) {
      // The first flaw that cannot be repaired stops the run.
      EXPECT_THAT(std::string(report.status().message()),
                  testing::ContainsRegex("random.jsonl:[0-9]+ \\(byte [0-9]+\\) "));
      ++stopped;
      continue;
    }
    ASSERT_TRUE(report.ok()) << report.status();
    const InputCounts& read = report->inputs[0].read;
    EXPECT_EQ(read.documents + read.counts.skipped + read.counts.empty, lines);
    EXPECT_EQ(read.file_bytes, bytes.size());
  }
  EXPECT_GT(stopped, 0);
}

}  // namespace
}  // namespace muster::trainer
