#include "trainer_core/text/journal.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "trainer_core/data/token_index.h"

namespace muster::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kFile[] = ".tokenize.journal";

Journal::Content some_content() {
  Journal::Content content;
  content.generation = 3;
  content.run.settings = {{"--documents", "lines"}, {kBadDocumentsSetting, "stop"}};
  content.run.inputs = {{"/data/\xFF\xC3\xA9.txt", InputFormat::kText, 10, 5},
                        {"/data/b.jsonl", InputFormat::kJsonLines, 20, 6}};
  return content;
}

FinishedShard some_shard(int number) {
  FinishedShard shard;
  shard.file = shard_file_name(static_cast<size_t>(number), 3);
  shard.header = {.token_count = 100, .document_count = 7, .tokens_crc32 = ~0U};
  shard.end = {1, uint64_t{1} << 40, 77};
  shard.file_position = 19;
  shard.counts.text_bytes = 400;
  shard.counts.skipped = 1;
  shard.counts.skipped_examples = {"a\xFF.txt:1 is bad"};
  shard.counts.empty = 4;
  shard.counts.empty_examples = {"a:9"};
  shard.counts.nuls = 2;
  shard.counts.nuls_examples = {"a:3"};
  InputCounts input{.documents = 7, .tokens = 100, .file_bytes = 19, .counts = shard.counts};
  shard.inputs[0].documents = 1;
  shard.inputs[1] = input;
  return shard;
}

TEST(Journal, ReadsBackEverythingUpToATornLine) {
  TempFolder folder;
  EXPECT_FALSE((*Journal::read(folder.path())).has_value());
  {
    auto journal = Journal::begin(folder.path(), some_content());
    ASSERT_TRUE(journal.ok()) << journal.status();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE((*journal)->append(some_shard(i)).ok());
  }
  const auto content = Journal::read(folder.path());
  ASSERT_TRUE(content.ok() && content->has_value());
  EXPECT_EQ((*content)->generation, 3U);
  EXPECT_EQ((*content)->run.settings, some_content().run.settings);
  EXPECT_EQ((*content)->run.inputs[0].path, some_content().run.inputs[0].path);
  ASSERT_EQ((*content)->shards.size(), 3U);
  const FinishedShard& last = (*content)->shards[2];
  EXPECT_EQ(last.file, "shard-00002.3.mtok");
  EXPECT_EQ(last.header, some_shard(2).header);
  EXPECT_EQ(last.end.offset, uint64_t{1} << 40);
  EXPECT_EQ(last.end.record, 77U);
  EXPECT_THAT(last.counts.skipped_examples, ElementsAre("a\xFF.txt:1 is bad"));
  EXPECT_EQ(last.counts.empty, 4U);
  EXPECT_EQ(last.counts.nuls, 2U);
  EXPECT_THAT(last.counts.nuls_examples, ElementsAre("a:3"));
  ASSERT_EQ(last.inputs.size(), 2U);
  EXPECT_EQ(last.inputs.at(0).documents, 1U);
  EXPECT_EQ(last.inputs.at(1).file_bytes, 19U);
  EXPECT_THAT(last.inputs.at(1).counts.skipped_examples, ElementsAre("a\xFF.txt:1 is bad"));
  EXPECT_THAT(last.inputs.at(1).counts.empty_examples, ElementsAre("a:9"));
  EXPECT_EQ(last.inputs.at(1).counts.nuls, 2U);
  EXPECT_THAT(last.inputs.at(1).counts.nuls_examples, ElementsAre("a:3"));

  const std::string whole = read_file(folder.file(kFile));
  for (size_t length = 0; length < whole.size(); length += 5) {
    write_file(folder.file(kFile), whole.substr(0, length));
    const auto torn = Journal::read(folder.path());
    ASSERT_TRUE(torn.ok());
    const auto lines =
        std::count(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length), '\n');
    ASSERT_EQ(torn->has_value(), lines > 0);
    if (lines > 0) {
      ASSERT_EQ(std::ssize((*torn)->shards), lines - 1);
    }
  }
}

TEST(Journal, ADifferentRunIsDetected) {
  const auto problem = [](const RunIdentity& now, bool had_bad_documents = false) {
    Journal::Content earlier = some_content();
    earlier.shards = {some_shard(0)};
    if (!had_bad_documents) earlier.shards[0].counts = {};
    return std::string(check_same_run(earlier, now).message());
  };
  RunIdentity now = some_content().run;
  EXPECT_EQ(problem(now), "");
  now.settings[kBadDocumentsSetting] = "skip";
  EXPECT_EQ(problem(now), "") << "it had none";
  EXPECT_THAT(problem(now, true), HasSubstr("with --bad-documents stop, not skip"));
  now = some_content().run;
  now.settings["--documents"] = "files";
  EXPECT_THAT(problem(now), HasSubstr("with --documents lines, not files"));
  now = some_content().run;
  now.inputs[1].bytes = 21;
  EXPECT_THAT(problem(now), HasSubstr("/data/b.jsonl has changed: it had 20 bytes, and has 21"));
  now.inputs[1].bytes = 20;
  now.inputs[1].modified_ns = 7;
  EXPECT_THAT(problem(now), HasSubstr("/data/b.jsonl was written to since then"));
  now.inputs.pop_back();
  EXPECT_THAT(problem(now), HasSubstr("of 2 input files, and this one has 1"));
  now.inputs[0].path = "/data/c.txt";
  EXPECT_THAT(problem(now), HasSubstr("where this one reads /data/c.txt"));
}

}  // namespace
}  // namespace muster::trainer
