#include "trainer_core/text/tokenize.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/trainer_core/text/text_files.h"
#include "tests/unit/trainer_core/text/tokenize_fixture.h"
#include "trainer_core/data/batches.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

class Tokenize : public TokenizeFixture {};

std::vector<int32_t> all_tokens(const std::string& folder) {
  auto dataset = TokenDataset::open(folder, kVocab);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_TRUE((*dataset)->verify_shards().ok());
  std::vector<int32_t> tokens((*dataset)->tokens());
  EXPECT_TRUE((*dataset)->read(0, tokens).ok());
  return tokens;
}

TEST_F(Tokenize, TheTokensAreTheText) {
  TokenizeProgress last;
  auto report = tokenize_files(options("all"), [&](const TokenizeProgress& progress) {
    EXPECT_GE(progress.done, last.done);
    EXPECT_LE(progress.done, progress.total);
    last = progress;
  });
  ASSERT_TRUE(report.ok()) << report.status();
  const TokenIndex* const index = &report->index;
  EXPECT_EQ(last.done, std::filesystem::file_size(folder_->file("text.txt")));
  EXPECT_EQ(report->input_bytes, last.total);
  EXPECT_EQ(index->documents, 3000U);
  auto tokenizer = Tokenizer::load(folder_->file("t.model"));
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->vocab_size(), kVocab);
  EXPECT_EQ(index->tokenizer_fingerprint, (*tokenizer)->fingerprint());

  const std::vector<int32_t> tokens = all_tokens(folder_->file("all"));
  std::string text;
  std::vector<int32_t> document;
  std::map<int32_t, double> counts;
  for (const int32_t token : tokens) {
    counts[token] += 1;
    if (token != (*tokenizer)->eos_id()) {
      document.push_back(token);
      continue;
    }
    text += *(*tokenizer)->decode(document) + "\n";
    document.clear();
  }
  std::string expected;  // without blank lines, which are not documents
  const std::string source = corpus(3000);
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\n' || expected.empty() || expected.back() != '\n') expected += source[i];
  }
  EXPECT_EQ(text, expected);
  EXPECT_EQ(index->bytes, expected.size() - 3000) << "the ends of lines are no text";
  double entropy = 0;
  for (const auto& [token, count] : counts) {
    const double share = count / static_cast<double>(tokens.size());
    entropy -= share * std::log(share);
  }
  EXPECT_NEAR(index->unigram_entropy_nats, entropy, 1e-9);
}

TEST_F(Tokenize, ThreadsAndShardSizesDoNotChangeTheTokens) {
  TokenizeOptions one = options("one");
  one.threads = 1;
  TokenizeOptions many = options("many");
  many.threads = 5;
  many.shard_tokens = 10'000;
  auto one_report = tokenize_files(one);
  auto many_report = tokenize_files(many);
  ASSERT_TRUE(one_report.ok() && many_report.ok());
  EXPECT_EQ(one_report->index.shards.size(), 1U);
  EXPECT_GT(all_tokens(one.output_directory).size(), 10'000U);
  EXPECT_EQ(all_tokens(one.output_directory), all_tokens(many.output_directory));
}

TEST_F(Tokenize, ParagraphsAreDocumentsOnRequest) {
  TokenizeOptions paragraphs = options("paragraphs");
  paragraphs.encode.read.documents = DocumentUnit::kParagraphs;
  auto report = tokenize_files(paragraphs);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->index.documents, 2000U);  // two of three lines end a paragraph
}

TEST_F(Tokenize, ANewRunReplacesTheOldShards) {
  TokenizeOptions first = options("again");
  first.shard_tokens = 1;  // one shard per chunk
  ASSERT_TRUE(tokenize_files(first).ok());
  ASSERT_TRUE(tokenize_files(options("again")).ok());
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_->file("again")))
    files += entry.exists() ? 1 : 0;
  EXPECT_EQ(files, 2U);  // one shard, one index
}

TEST_F(Tokenize, AnIndexThatCannotBeWrittenLeavesTheOldDataSetComplete) {
  ASSERT_TRUE(tokenize_files(options("torn")).ok());
  const std::string folder = folder_->file("torn");
  const auto before = all_tokens(folder);
  TokenizeOptions other = options("torn");
  other.encode.read.documents = DocumentUnit::kParagraphs;
  // Every name that the index's temporary file may have is taken.
  std::vector<std::string> taken;
  for (int i = 0; i < 100; ++i)
    taken.push_back(absl::StrCat(folder, "/index.json.tmp-", getpid(), "-", i));
  for (const std::string& name : taken) write_file(name, "");
  EXPECT_FALSE(tokenize_files(other).ok());
  for (const std::string& name : taken) std::filesystem::remove(name);
  EXPECT_EQ(all_tokens(folder), before);
  ASSERT_TRUE(tokenize_files(other).ok());
  EXPECT_NE(all_tokens(folder), before);
  const auto files = std::filesystem::directory_iterator(folder);
  EXPECT_EQ(std::distance(begin(files), end(files)), 2) << "shards of two runs are left over";
}

TEST_F(Tokenize, BadInputLeavesTheOldDataSetUnchanged) {
  ASSERT_TRUE(tokenize_files(options("kept")).ok());
  const auto before = all_tokens(folder_->file("kept"));
  TokenizeOptions bad = options("kept");
  bad.inputs = {folder_->file("bad.txt")};
  for (const std::string& text : {std::string(), std::string("a\0b", 3), std::string(" \n\n")}) {
    write_file(bad.inputs[0], text);
    const auto status = tokenize_files(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("bad.txt"));
  }
  bad = options("kept");
  bad.tokenizer_path = folder_->file("bad.model");
  write_file(bad.tokenizer_path, "not a model");
  EXPECT_THAT(std::string(tokenize_files(bad).status().message()),
              HasSubstr("not a SentencePiece model"));
  EXPECT_EQ(all_tokens(folder_->file("kept")), before);
}

// Returns each file of a folder, by its relative path.
std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename().string()] = read_file(entry.path().string());
  return files;
}

// A corpus of all formats, large enough for several chunks.
std::string make_corpus(const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::string lines;
  std::string json;
  std::string records;
  for (int i = 0; i < 9000; ++i) {
    const std::string text = "And it came to pass in the year " + std::to_string(i * 7919 % 1000);
    lines += text + ", saying, Behold.\n";
    json += R"({"text": ")" + text + R"( that the people \u00e9 spake"})" + "\n";
    records += tfrecord(example(text + "\nand the children of Israel"));
  }
  write_file(folder + "/a-1.txt", lines);
  write_file(folder + "/a-2.jsonl.gz", gzip(json));
  write_file(folder + "/a-10.jsonl.zst", zstd(json));
  write_file(folder + "/b.tfrecord-00000-of-00001", records);
  return folder;
}

TEST_F(Tokenize, DocumentsOfAllFormatsAreInTheShardsInOrder) {
  TokenizeOptions all = options("formats");
  all.inputs = {make_corpus(folder_->file("corpus"))};
  all.shard_tokens = 200'000;
  const auto report = tokenize_files(all);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->index.documents, 36'000U);
  EXPECT_EQ(report->input_files, 4U);
  ASSERT_GT(report->index.shards.size(), 2U);
  const auto tokenizer = Tokenizer::load(all.tokenizer_path);
  std::vector<std::string> texts;
  for (const TokenIndex::Shard& entry : report->index.shards) {
    const auto shard = ShardReader::open(all.output_directory + "/" + entry.file);
    ASSERT_TRUE(shard.ok()) << shard.status();
    std::vector<uint64_t> ends(entry.documents);
    ASSERT_TRUE((*shard)->document_ends(0, ends).ok());
    uint64_t begin = 0;
    for (const uint64_t end : ends) {
      std::vector<int32_t> ids(end - begin);
      ASSERT_TRUE((*shard)->read(begin, ids).ok());
      ASSERT_EQ(ids.back(), (*tokenizer)->eos_id());
      texts.push_back(*(*tokenizer)->decode(ids));
      begin = end;
    }
    ASSERT_EQ(begin, entry.tokens);
  }
  ASSERT_EQ(texts.size(), 36'000U);
  EXPECT_EQ(texts[1], "And it came to pass in the year 919, saying, Behold.");
  EXPECT_EQ(texts[9'001], "And it came to pass in the year 919 that the people é spake");
  EXPECT_EQ(texts[18'001], texts[9'001]) << "a-10 comes behind a-2";
  EXPECT_EQ(texts[27'001], "And it came to pass in the year 919\nand the children of Israel");
}

// A full disk leaves the same as a kill: the shards so far, and the journal.
TEST_F(Tokenize, AFailedRunResumesAndProducesTheSameBytes) {
  TokenizeOptions run = options("undisturbed");
  run.inputs = {make_corpus(folder_->file("corpus"))};
  run.shard_tokens = 30'000;
  run.threads = 3;
  const auto undisturbed = tokenize_files(run);
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.status();
  const size_t shards = undisturbed->index.shards.size();
  ASSERT_GT(shards, 5U);

  run.output_directory = folder_->file("disturbed");
  std::filesystem::create_directories(run.output_directory);
  for (size_t next = 1; next < shards; next += 2) {
    const std::string blocked = run.output_directory + "/" + shard_file_name(next) + ".tmp";
    std::filesystem::create_symlink("/dev/full", blocked);
    const auto status = tokenize_files(run).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("No space left"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("kept: the same command resumes"));
    std::filesystem::remove(blocked);
  }
  // A shard that was damaged meanwhile is written again, together with those after it.
  const std::string victim = run.output_directory + "/" + shard_file_name(1);
  std::string bytes = read_file(victim);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(victim, bytes);
  const auto resumed = tokenize_files(run);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_EQ(resumed->reused_shards, 1U);
  EXPECT_EQ(files_of(run.output_directory), files_of(folder_->file("undisturbed")));
}

TEST_F(Tokenize, OtherInputsOrOptionsDoNotResume) {
  TokenizeOptions run = options("changed");
  run.inputs = {folder_->file("changing.txt")};
  write_file(run.inputs[0], corpus(30'000));
  run.shard_tokens = 1;
  std::filesystem::create_directories(run.output_directory);
  const std::string blocked = run.output_directory + "/" + shard_file_name(2) + ".tmp";
  std::filesystem::create_symlink("/dev/full", blocked);
  ASSERT_FALSE(tokenize_files(run).ok());
  std::filesystem::remove(blocked);

  TokenizeOptions other = run;
  other.encode.add_eos = false;
  const auto refused = tokenize_files(other).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--restart"));
  write_file(run.inputs[0], corpus(30'000) + "One more.\n");
  EXPECT_THAT(std::string(tokenize_files(run).status().message()),
              HasSubstr("changing.txt has changed: it had "));
  run.restart = true;
  const auto again = tokenize_files(run);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->reused_shards, 0U);
  EXPECT_EQ(again->index.documents, 30'001U);
  EXPECT_EQ(files_of(run.output_directory).size(), again->index.shards.size() + 1);
}

TEST_F(Tokenize, BadDocumentsAreRepairedSkippedOrStopTheRun) {
  TokenizeOptions run = options("bad-documents");
  const std::string path = folder_->file("bad.jsonl");
  run.inputs = {path};
  write_file(
      path,
      "{\"text\": \"good\"}\n{\"text\": \"bad \xFF\"}\n\n{\"txt\": 1}\n{\"text\": \"good\"}\n");
  auto report = tokenize_files(run);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(report.status().message()),
            path +
                ":4 (byte 36) has no field \"text\"; it has \"txt\"; --bad-documents skip "
                "leaves such documents out");
  run.encode.bad_documents = BadDocuments::kStop;
  EXPECT_THAT(std::string(tokenize_files(run).status().message()),
              HasSubstr(path + ":2 (byte 17) is no valid UTF-8"));
  run.encode.bad_documents = BadDocuments::kSkip;
  report = tokenize_files(run);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->index.documents, 2U);
  EXPECT_EQ(report->counts.skipped, 2U);
  EXPECT_THAT(report->counts.skipped_examples[1], HasSubstr(":4 (byte 36) has no field"));

  run.encode.bad_documents = BadDocuments::kRepair;
  run.inputs = {folder_->file("stray.txt")};
  write_file(run.inputs[0], corpus(1000) + "a stray \xE9 byte\n");
  report = tokenize_files(run);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->counts.repaired, 1U);
  EXPECT_THAT(report->counts.repaired_examples[0], HasSubstr("stray.txt:"));
  const std::vector<int32_t> tokens = all_tokens(run.output_directory);
  const auto tokenizer = Tokenizer::load(run.tokenizer_path);
  EXPECT_THAT(*(*tokenizer)->decode(tokens), testing::EndsWith("a stray \xEF\xBF\xBD byte"));
}

TEST_F(Tokenize, ADamagedFileStopsTheRunWithItsOffset) {
  TokenizeOptions run = options("damaged");
  const std::string whole = gzip(corpus(20'000));
  run.inputs = {folder_->file("cut.txt.gz")};
  write_file(run.inputs[0], whole.substr(0, whole.size() - 100));
  run.encode.bad_documents = BadDocuments::kSkip;
  const auto status = tokenize_files(run).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cut.txt.gz is damaged at offset " + std::to_string(whole.size() - 100)));
}

TEST_F(Tokenize, LeftoversOfKilledRunsAreRemoved) {
  const TokenizeOptions run = options("leftovers");
  ASSERT_TRUE(tokenize_files(run).ok());
  const auto before = files_of(run.output_directory);
  for (const char* name : {"index.json.tmp-4711-0", ".tokenize.journal.tmp-4711-0",
                           "shard-00007.mtok.tmp", "shard-00000.9.mtok", "notes.tmp"}) {
    write_file(run.output_directory + "/" + name, "x");
  }
  ASSERT_TRUE(tokenize_files(run).ok());
  const auto after = files_of(run.output_directory);
  EXPECT_EQ(after.size(), before.size() + 1) << "the user's own file stays";
  EXPECT_TRUE(after.contains("notes.tmp"));
}

TEST_F(Tokenize, TwoRunsCannotWriteToOneFolder) {
  bool was_refused = false;
  const auto report = tokenize_files(options("busy"), [&](const TokenizeProgress&) {
    const auto status = tokenize_files(options("busy")).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("another muster tokenize is writing"));
    was_refused = true;
  });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(was_refused);
}

TEST_F(Tokenize, AnOutputThatIsAFileIsAnError) {
  TokenizeOptions bad = options("t.model");
  EXPECT_FALSE(tokenize_files(bad).ok());
}

}  // namespace
}  // namespace muster::trainer
